"""Answers do not depend on company: the same requests, however they are batched, chunked, cached and interrupted.

In one process, with the real scheduler and the real runner, and tiny models in the row-invariant form; tokens and
log-probabilities must be equal bit for bit.
"""

import random
from dataclasses import replace

import pytest
import torch
from builders.backends import BACKENDS, NAN_BYTE, load_on
from builders.mxfp4_model import mxfp4_model
from builders.runner_harness import Answer, TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.protocol.messages import Prompt
from penstock.worker.models.load import Model

WINDOW = {"sliding_window": 24}
# The backend, the family, what its checkpoint has otherwise, how it is loaded, and the format of keys and values.
MODELS: dict[str, tuple[str, str, dict, dict, str | None]] = {
    "native qwen3": ("native", "qwen3", {}, {}, None),
    "native llama in bfloat16": ("native", "llama", {"dtype": "bfloat16"}, {}, None),
    "native mistral with a window": ("native", "mistral", WINDOW, {}, "fp16"),
    "native qwen3 in int8": ("native", "qwen3", {"dtype": "bfloat16"}, {"quantization": "int8"}, "int8"),
    "native ernie in int4": ("native", "ernie4_5", {}, {"quantization": "int4"}, "uint4"),
    "native youtu, latents": ("native", "youtu", {}, {}, None),
    "native youtu, latents in bfloat16": ("native", "youtu", {"dtype": "bfloat16"}, {"quantization": "int8"}, "bf16"),
    "native gpt-oss in mxfp4": ("native", "mxfp4", {"head_dim": 32}, {"quantization": "int8"}, "bf16"),
    "native qwen3.5, states": ("native", "qwen3_5_text", {}, {}, None),
    "native lfm2, states, in int8": ("native", "lfm2", {"dtype": "bfloat16"}, {"quantization": "int8"}, "int8"),
    "native qwen3-next, states, in int4": ("native", "qwen3_next", {}, {"quantization": "int4"}, None),
    "torch qwen3.5 moe, states": ("invariant", "qwen3_5_moe_text", {}, {}, None),
    "torch qwen3": ("invariant", "qwen3", {}, {}, None),
    "torch llama in bfloat16": ("invariant", "llama", {"dtype": "bfloat16"}, {}, None),
    "torch mistral with a window": ("invariant", "mistral", WINDOW, {}, None),
    "torch gpt-oss": ("invariant", "gpt_oss", {"head_dim": 32}, {}, None),
    "torch deepseek_v3, latents": ("invariant", "deepseek_v3", {}, {}, None),
}
# Computed as others here are, in another format or within a window, which tests/worker/test_layers.py has too.
FOR_LONG = {
    "torch qwen3.5 moe, states",
    "native youtu, latents",
    "torch llama in bfloat16",
    "torch mistral with a window",
}
COMMON = [(7 * place) % 290 + 5 for place in range(50)]
SAMPLED = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 1.2, "top_p": 0.7, "repetition_penalty": 1.2},
    {"temperature": 0.7, "min_p": 0.05, "frequency_penalty": 0.4, "presence_penalty": 0.3},
    {"logit_bias": {9: 2.0}, "bad_words_ids": [[11], [9, 9]], "repetition_penalty": 1.1},
]


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.long] * (name in FOR_LONG)) for name in MODELS]
)
def model(request, tmp_path_factory) -> Model:
    backend, family, given, loaded, kv_kind = MODELS[request.param]
    folder = tmp_path_factory.mktemp("model")
    written = mxfp4_model(folder, **given) if family == "mxfp4" else tiny_model(folder, family, **given)
    model = load_on(backend, written, **loaded)
    return replace(model, kv_default=kv_kind) if kv_kind else model


def requests(first_id: int = 0) -> list[Prompt]:
    """Twelve of mixed lengths, greedy and sampled; half of them begin alike."""
    asked = []
    for number in range(12):
        own = [(13 * number + 5 * place) % 300 + 3 for place in range(1 + 7 * number % 40)]
        token_ids = COMMON[: 4 * number] + own if number % 2 else own
        params = {"max_tokens": 6 + number, "logprobs": 3, **SAMPLED[number % len(SAMPLED)]}
        if number % 5 == 0:
            params["prompt_logprobs"] = 2
        if number == 7:
            params["n"] = 3
        asked.append(prompt(first_id + number, token_ids, seed=number, **params))
    return asked


def answers(model: Model, *, asked: list[Prompt] | None = None, **options) -> list[Answer]:
    shape = {name: options.pop(name) for name in ("num_blocks", "block_size", "num_slots") if name in options}
    engine = TinyEngine(slotted_runner(model, **shape), **options)
    return engine.run(*(asked or requests()))


@pytest.fixture(scope="module")
def alone(model) -> list[Answer]:
    return [answer for asked in requests() for answer in answers(model, asked=[asked], shares_prefixes=False)]


def test_together_as_alone(model, alone):
    assert answers(model) == alone


def test_every_request_was_answered_in_full(alone):
    assert all(answer.finish_reason == "length" and len(answer.logprobs) == len(answer.tokens) for answer in alone)
    assert len({tuple(answer.tokens) for answer in alone}) == len(alone)


def test_in_another_order_as_alone(model, alone):
    asked = requests()
    random.Random(3).shuffle(asked)
    by_request = {}
    for each in asked:
        by_request[each.request_id] = each.params.n
    found = iter(answers(model, asked=asked))
    taken = {request: [next(found) for _ in range(count)] for request, count in by_request.items()}
    assert [answer for request in sorted(taken) for answer in taken[request]] == alone


@pytest.mark.parametrize("budget", [37, *(pytest.param(tokens, marks=pytest.mark.long) for tokens in (1, 16))])
def test_in_small_chunks_as_alone(model, alone, budget):
    assert answers(model, max_num_batched_tokens=budget) == alone


@pytest.mark.parametrize("num_slots", [2, pytest.param(5, marks=pytest.mark.long)])
def test_few_at_a_time_as_alone(model, alone, num_slots):
    assert answers(model, num_slots=num_slots, shares_prefixes=False) == alone


def test_preempted_as_alone(model, alone):
    runner = slotted_runner(model, num_blocks=12)
    engine = TinyEngine(runner, max_num_batched_tokens=40)
    assert engine.run(*requests()) == alone
    assert engine.scheduler.stats().preemptions > 0, "the pool was meant to be too small"


def test_evicted_to_cpu_memory_and_back_as_alone(model, alone):
    engine = TinyEngine(slotted_runner(model, num_blocks=12, num_cells=200), max_num_batched_tokens=40)
    assert engine.run(*requests()) == alone
    assert engine.run(*requests(first_id=100)) == alone
    stats = engine.scheduler.stats()
    assert stats.preemptions > 0 and stats.loaded_blocks > 5


def test_with_the_prefix_cached_as_alone(model, alone):
    engine = TinyEngine(slotted_runner(model, num_blocks=256))
    assert engine.run(*requests()) == alone
    assert engine.run(*requests(first_id=100)) == alone
    assert engine.scheduler.stats().cached_tokens > 0


def test_other_blocks_hold_the_same_answers(model, alone):
    tokens = [answer.tokens for answer in answers(model, block_size=32)]
    assert tokens == [answer.tokens for answer in alone]


@pytest.mark.parametrize("threads", [1, 3, pytest.param(2, marks=pytest.mark.long)])
def test_with_any_number_of_threads_as_alone(model, alone, threads):
    before, library = torch.get_num_threads(), model.backend.library
    torch.set_num_threads(threads)
    if library is not None:
        library.set_threads(threads)
    found = answers(model)
    torch.set_num_threads(before)
    if library is not None:
        library.set_threads(1)
    assert found == alone


@pytest.mark.parametrize("backend", BACKENDS)
class TestNaN:
    """One request's NaN stays its own, whatever computes it."""

    def engine(self, model: Model) -> TinyEngine:
        return TinyEngine(slotted_runner(model, num_blocks=24), max_num_batched_tokens=64)

    def test_a_request_that_ends_in_nan_harms_no_other(self, tmp_path, backend):
        poison = 306
        model = load_on(backend, tiny_model(tmp_path, "llama", poison=poison))
        right = requests()[:6]
        broken = prompt(50, [5, 6, 7, 8, 9] * 8 + [poison] + [3] * 30)
        expected = self.engine(model).run(*right)
        found = self.engine(model).run(*right[:3], broken, *right[3:])
        assert found[3].error is not None and "not finite" in found[3].error and found[3].tokens == []
        assert [answer.tokens for answer in found[:3] + found[4:]] == [answer.tokens for answer in expected]

    def test_what_an_earlier_tenant_left_in_a_block_is_never_read(self, tmp_path, backend):
        model = load_on(backend, tiny_model(tmp_path, "llama"))
        expected = self.engine(model).run(*requests()[:6])
        engine = self.engine(model)
        for memory in engine.runner.memory.tensors:
            memory.view(torch.uint8).fill_(NAN_BYTE)
        assert engine.run(*requests()[:6]) == expected
