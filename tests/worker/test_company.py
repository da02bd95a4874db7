"""Answers do not depend on company: the same requests, however they are batched, chunked, cached and interrupted.

In one process, with the real scheduler and the real runner, and tiny models in the row-invariant form; tokens and
log-probabilities must be equal bit for bit.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from builders.backends import BACKENDS, INVARIANT_BACKENDS, NAN_BYTE, load_on
from builders.cases import for_each
from builders.erratic_drafts import draft_erratically
from builders.model_drafts import draft_by_model, with_draft
from builders.quantized_model import mxfp4_model
from builders.runner_harness import Answer, engine_of, expecting, prompt
from builders.tiny_eagle import EagleHeads, Form
from builders.tiny_model import tiny_model

from penstock.engine.admission.limits import DraftLimits
from penstock.protocol.messages import Prompt
from penstock.protocol.parameters.beams import BeamSearchParams
from penstock.protocol.wire import column, values
from penstock.worker.start.eagle_heads import with_eagle_heads
from penstock.worker.start.model import Model

WINDOW = {"sliding_window": 24}
LATER_WINDOWS = dict(num_hidden_layers=3, use_sliding_window=True, max_window_layers=1, sliding_window=40)
# The backend, the family, what its checkpoint has otherwise, how it is loaded, and the format of keys and values.
MODELS: dict[str, tuple[str, str, dict, dict, str | None]] = {
    "native qwen3": ("native", "qwen3", {}, {}, None),
    "native llama in bfloat16": ("native", "llama", {"dtype": "bfloat16"}, {}, None),
    "native mistral with a window": ("native", "mistral", WINDOW | {"dtype": "float16"}, {}, "fp16"),
    "native qwen3 in int8": ("native", "qwen3", {"dtype": "bfloat16"}, {"quantization": "int8"}, "int8"),
    "native ernie in int4": ("native", "ernie4_5", {}, {"quantization": "int4"}, "uint4"),
    "native youtu, latents": ("native", "youtu", {}, {}, None),
    "native youtu, latents in bfloat16": ("native", "youtu", {"dtype": "bfloat16"}, {"quantization": "int8"}, "bf16"),
    "native youtu, latents in bytes": ("native", "youtu", {"dtype": "bfloat16"}, {"quantization": "int8"}, "int8"),
    "native gpt-oss in mxfp4": ("native", "mxfp4", {"head_dim": 32}, {"quantization": "int8"}, "bf16"),
    "native gpt-oss, windows in turn": ("native", "gpt_oss", {"num_hidden_layers": 4, "sliding_window": 20}, {}, None),
    "native qwen2, windows in later layers": ("native", "qwen2", LATER_WINDOWS, {}, None),
    "native gemma 4, keys of others": ("native", "gemma4_text", {}, {}, None),
    "native qwen3.5, states": ("native", "qwen3_5_text", {}, {}, None),
    "native lfm2, states, in int8": ("native", "lfm2", {"dtype": "bfloat16"}, {"quantization": "int8"}, "int8"),
    "native qwen3-next, states, in int4": ("native", "qwen3_next", {}, {"quantization": "int4"}, None),
    "torch qwen3.5 moe, states": ("invariant", "qwen3_5_moe_text", {}, {}, None),
    "torch qwen3": ("invariant", "qwen3", {}, {}, None),
    "torch llama in bfloat16": ("invariant", "llama", {"dtype": "bfloat16"}, {}, None),
    "torch mistral with a window": ("invariant", "mistral", WINDOW | {"dtype": "float16"}, {}, None),
    "torch gpt-oss": ("invariant", "gpt_oss", {"head_dim": 32}, {}, None),
    "torch youtu, latents": ("invariant", "youtu", {}, {}, None),
    "torch deepseek_v3, latents": ("invariant", "deepseek_v3", {}, {}, None),
}
# Computed as others here are.
FOR_LONG = (
    "native youtu, latents", "native qwen2, windows in later layers", "torch deepseek_v3, latents",
    "torch llama in bfloat16",
)  # fmt: skip
# How requests are scheduled is no matter of what computes them: in the quick run each kind of memory is enough.
NATIVE = tuple(name for name in MODELS if name.startswith("native"))
KINDS = (
    "native qwen3", "native qwen3 in int8", "native mistral with a window", "native youtu, latents in bfloat16",
    "native qwen3.5, states", "native gpt-oss, windows in turn", "native gemma 4, keys of others",
)  # fmt: skip
RARER = tuple(name for name in NATIVE if name not in KINDS)
# Torch takes long: in the quick run one of its models with keys and values, and one with states.
RARER_ON_TORCH = tuple(name for name in MODELS if name not in (*NATIVE, "torch qwen3", "torch qwen3.5 moe, states"))
COMMON = [(7 * place) % 290 + 5 for place in range(50)]
SAMPLED = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 1.2, "top_p": 0.7, "repetition_penalty": 1.2},
    {"temperature": 0.7, "min_p": 0.05, "frequency_penalty": 0.4, "presence_penalty": 0.3},
    {"logit_bias": {9: 2.0}, "bad_words_ids": [[11], [9, 9]], "repetition_penalty": 1.1},
]


@pytest.fixture(scope="module")
def model(request, tmp_path_factory) -> Model:
    backend, family, given, loaded, kv_kind = MODELS[request.param]
    folder = tmp_path_factory.mktemp("model")
    written = mxfp4_model(folder, **given) if family == "mxfp4" else tiny_model(folder, family, **given)
    model = load_on(backend, written, **loaded)
    return replace(model, kv_default=kv_kind) if kv_kind else model


def on(*names: str, long: tuple[str, ...] = FOR_LONG) -> pytest.MarkDecorator:
    """Run a test on each of these models."""
    models = [pytest.param(name, marks=[pytest.mark.long] * (name in long)) for name in names]
    return pytest.mark.parametrize("model", models, indirect=True, scope="module")


def requests(first_id: int = 0, count: int = 12) -> list[Prompt]:
    """Of mixed lengths, greedy and sampled; half of them begin alike."""
    asked = []
    for number in range(count):
        own = [(13 * number + 5 * place) % 300 + 3 for place in range(1 + 7 * number % 40)]
        token_ids = COMMON[: 4 * number] + own if number % 2 else own
        params = {"max_tokens": 6 + number % 7, "logprobs": 3, **SAMPLED[number % len(SAMPLED)]}
        if number % 5 == 0:
            params["prompt_logprobs"] = 2
        if number == 7:
            params["n"] = 3
        asked.append(prompt(first_id + number, token_ids, seed=number, **params))
    return asked


@pytest.fixture(scope="module")
def alone(model) -> list[Answer]:
    """In a memory of one group, which keeps all tokens and finds no prefix."""
    plain = {"shares_prefixes": False, "gives_back": False}
    found = [answer for asked in prompts(model) for answer in engine_of(model, **plain).run(asked)]
    assert all(answer.finish_reason == "length" and len(answer.logprobs) == len(answer.tokens) for answer in found)
    assert len({tuple(answer.tokens) for answer in found}) == len(found)
    return found


@contextmanager
def threads(model: Model, count: int) -> Iterator[None]:
    before, library = torch.get_num_threads(), model.backend.library
    try:
        torch.set_num_threads(count)
        if library is not None:
            library.set_threads(count)
        yield
    finally:
        torch.set_num_threads(before)
        if library is not None:
            library.set_threads(1)


def prompts(model: Model) -> list[Prompt]:
    """Fewer on torch, which takes long."""
    return requests(count=6 if model.backend.library is None else 12)


@on(*MODELS, long=FOR_LONG + RARER_ON_TORCH)
def test_in_another_order_in_small_chunks_and_by_several_threads_answers_are_as_alone(model, alone):
    asked = prompts(model)
    random.Random(3).shuffle(asked)
    with threads(model, 3):
        found = iter(engine_of(model, max_num_batched_tokens=37).run(*asked))
    taken = {each.request_id: [next(found) for _ in range(each.params.n)] for each in asked}
    assert [answer for request in sorted(taken) for answer in taken[request]] == alone


# How the scheduler has little room or much, and what its counters say then.
ROOMS: dict[str, tuple[dict[str, Any], str | None]] = {
    "all at once": ({}, None),
    "few at a time": ({"num_slots": 2, "shares_prefixes": False}, None),
    "preempted": ({"num_blocks": 7, "max_num_batched_tokens": 40}, "preemptions"),
    "in CPU memory and back": ({"num_blocks": 8, "num_cells": 200, "max_num_batched_tokens": 40}, "loaded_blocks"),
    # Of states there are checkpoints on the way, also where the answers are.
    "with the prefix cached": ({"num_blocks": 256, "checkpoint_every": 16}, "cached_tokens"),
}


@on(*NATIVE, long=RARER)
@for_each("room", ROOMS)
def test_however_they_are_scheduled_answers_are_as_alone(model, alone, room):
    shape, counter = ROOMS[room]
    engine = engine_of(model, **shape)
    assert engine.run(*requests()) == alone
    if counter:
        assert counter == "preemptions" or engine.run(*requests(first_id=100)) == alone
        assert getattr(engine.scheduler.stats(), counter) > 0, room


@on(*NATIVE, long=RARER)
def test_in_blocks_of_another_size_tokens_are_as_alone(model, alone):
    found = engine_of(model, block_size=32).run(*requests())
    assert [answer.tokens for answer in found] == [answer.tokens for answer in alone]


def claimed(asked: list[Prompt], answers: list[Answer]) -> list[Prompt]:
    """The prompts, each with the claim that its answers are these."""
    found = iter(answers)
    for each in asked:
        each.claims = [column(next(found).tokens) for _ in range(each.params.n)]
    return asked


@on(*MODELS, long=RARER + RARER_ON_TORCH)
@for_each("room", [{}, {"max_num_batched_tokens": 13}, {"num_blocks": 9, "max_num_batched_tokens": 40}])
def test_claimed_answers_are_drawn_again_from_chunks_of_them(model, alone, room):
    engine = engine_of(model, **room)
    assert engine.run(*claimed(prompts(model), alone)) == alone
    if "num_blocks" not in room:  # each chunk brings several tokens
        assert sum(len(values(plan.slots)) for plan in engine.plans) < sum(len(answer.tokens) for answer in alone)


# Little room and much, as above, and prompts that wait for their layers.
DRAFTING: list[dict[str, Any]] = [
    {},
    {"max_num_batched_tokens": 37},
    {"num_blocks": 9, "max_num_batched_tokens": 40},
    {"num_blocks": 8, "num_cells": 200, "max_num_batched_tokens": 40},
    {"num_slots": 2, "max_num_batched_tokens": 20, "layered": 3},
    {"draft_limits": DraftLimits(each=2, all=9)},
]


@on(*MODELS, long=RARER + RARER_ON_TORCH)
@for_each("room", DRAFTING)
def test_whatever_is_drafted_answers_are_as_alone(model, alone, room):
    if model.backend.library is None and room not in DRAFTING[2:5]:
        pytest.skip("torch takes long: only where memory is scarce or layers wait")
    engine = engine_of(model, drafts=0, **{"num_states": 300, **room})
    for first_id in (0, 100):  # then with prefixes found
        assert engine.run(*expecting(requests(first_id, len(prompts(model))), alone)) == alone
    engine.scheduler.check()
    assert 0 < engine.scheduler.counters.accepted_tokens < engine.scheduler.counters.draft_tokens


def with_random_heads(model: Model, folder: Path) -> Model:
    """Heads that are rarely right; the model's layers are watched."""
    reads = [0, 1, model.config.num_layers]
    form = Form(own_tokens=290, reads=reads, given={"eagle_aux_hidden_state_layer_ids": reads})
    return with_eagle_heads(model, EagleHeads(folder, form, model.config).folder)


# What a draft model or heads keep lies next to what the model keeps, of whatever kind that is.
DRAFTED = ("native qwen3", "native qwen3.5, states", "native gpt-oss, windows in turn")
RARELY_DRAFTED = tuple(name for name in (*KINDS, "torch qwen3") if name not in DRAFTED)


@on(*KINDS, "torch qwen3", long=RARELY_DRAFTED)
@for_each("by_heads, most", [(False, 5), (True, 3)])
@for_each("room", [{"max_num_batched_tokens": 37}, {"num_blocks": 14, "num_cells": 200}])
def test_whatever_a_model_or_heads_draft_answers_are_as_alone(model, alone, by_heads, most, room, tmp_path):
    if by_heads and model.backend.library is None:
        pytest.skip("heads are computed by native kernels")
    limits, draft = DraftLimits(each=9, all=64), tiny_model(tmp_path / "draft", "qwen3", dtype="bfloat16")
    drafting = with_random_heads(model, tmp_path) if by_heads else with_draft(model, draft)
    engine = engine_of(drafting, draft_limits=limits, num_states=300, **room)
    draft_by_model(engine.runner, most=most)
    for first_id in (0, 100):  # then with prefixes found
        assert engine.run(*requests(first_id, len(prompts(model)))) == alone
    engine.scheduler.check()
    assert engine.scheduler.counters.draft_tokens > 0


@on("native qwen3", "native qwen3.5, states", "torch qwen3")
def test_a_claim_is_refuted_at_its_first_wrong_token(model, alone):
    claims = [replace(answer, tokens=[*answer.tokens]) for answer in alone]
    places = [3 * number % len(claim.tokens) for number, claim in enumerate(claims)]
    for claim, place in zip(claims, places, strict=True):
        claim.tokens[place] = (claim.tokens[place] + 1) % 290
    found = engine_of(model, max_num_batched_tokens=37).run(*claimed(prompts(model), claims))
    assert [answer.tokens for answer in found] == [
        answer.tokens[: place + 1] for answer, place in zip(alone, places, strict=True)
    ]
    for answer, place, honest in zip(found, places, alone, strict=True):
        assert answer.logprobs == honest.logprobs[: place + 1]
        assert answer.finish_reason == "abort"


@on(*MODELS, long=RARER + RARER_ON_TORCH)
@for_each("room", [{"max_num_batched_tokens": 20}, {"max_num_batched_tokens": 16, "num_blocks": 9}])
def test_layer_by_layer_over_several_steps_answers_are_as_alone(model, alone, room):
    engine = engine_of(model, layered=len(room), **room)
    assert engine.run(*prompts(model)) == alone
    assert engine.num_layered > 1


# --- beams: forks and copied blocks hold what was computed into them --------------------------------------------------


def searches() -> list[Prompt]:
    asked = []
    for number in range(4):
        params = BeamSearchParams(beam_width=2 + number, max_tokens=12, early_stopping="never")
        tokens = [(13 * number + 5 * place) % 300 + 3 for place in range(3 + 11 * number)]
        one = prompt(number, tokens, n=params.beam_width, max_tokens=12, eos_token_id=[2, 4])
        one.beams = params
        asked.append(one)
    return asked


BEAMED = ("native qwen3", "native ernie in int4", "native qwen3.5, states", "torch qwen3")


@on(*BEAMED, long=("torch qwen3",))
def test_among_samples_and_in_little_room_beams_are_as_alone(model):
    alone = [answer for asked in searches() for answer in engine_of(model).run(asked)]
    assert len({tuple(answer.tokens) for answer in alone}) == len(alone) == 2 + 3 + 4 + 5
    samples = [
        prompt(10 + number, [7 + number] * 20, seed=number, temperature=1.0, max_tokens=25) for number in range(4)
    ]
    drawn = engine_of(model).run(*samples)
    for shape in ({}, {"num_slots": 3}, {"num_blocks": 9, "num_slots": 5}, {"num_blocks": 9, "drafts": 1}):
        engine = engine_of(model, **shape)
        assert engine.run(*searches(), *expecting(samples, drawn)) == alone + drawn, shape
        stats = engine.scheduler.stats()
        assert stats.free_blocks == stats.blocks, shape
        assert stats.preemptions > 0 or "num_blocks" not in shape


def decided(**early_stop: Any) -> list[Prompt]:
    settled = {"window_size": 4, "threshold": 0.05, **early_stop}
    return [
        prompt(number, [9 + number, 41, 42 + number], number, temperature=0.5, max_tokens=60, early_stop=settled)
        for number in range(8)
    ]


@on("native qwen3")
def test_an_answer_without_doubt_ends_at_the_same_token_in_any_company(model):
    alone = [engine_of(model).run(asked)[0] for asked in decided()]
    assert len({len(answer.tokens) for answer in alone if answer.finish_reason == "stop"}) > 1
    for shape in ({}, {"num_blocks": 14}, {"num_slots": 3}, {"drafts": 1}, {"drafts": 2, "num_slots": 3}):
        engine = engine_of(model, **shape)
        assert engine.run(*expecting(decided(), alone)) == alone, shape
        assert (engine.scheduler.stats().preemptions > 0) == ("num_blocks" in shape)
    never = engine_of(model).run(*decided(enable_early_stop=False))
    assert {answer.finish_reason for answer in never} == {"length"}


@for_each("backend", BACKENDS)
def test_a_request_that_ends_in_nan_harms_no_other(tmp_path, backend):
    poison = 306
    model = load_on(backend, tiny_model(tmp_path, "llama", poison=poison))
    limits, right = {"num_blocks": 24, "max_num_batched_tokens": 64}, requests(count=6)
    broken = prompt(50, [5, 6, 7, 8, 9] * 8 + [poison] + [3] * 30)
    expected = engine_of(model, **limits).run(*right)
    found = engine_of(model, **limits).run(*right[:3], broken, *right[3:])
    assert found[3].error is not None and "not finite" in found[3].error and found[3].tokens == []
    assert [answer.tokens for answer in found[:3] + found[4:]] == [answer.tokens for answer in expected]
    # Nor does a beam search whose logits are broken.
    search, other = prompt(51, [9, 8, poison], n=3, max_tokens=12), searches()[0]
    search.beams = BeamSearchParams(beam_width=3, max_tokens=12)
    answers = engine_of(model).run(other, search)
    assert all("not finite" in answer.error for answer in answers[2:])
    assert [answer.tokens for answer in answers[:2]] == [answer.tokens for answer in engine_of(model).run(other)]


def dangerous(poison: int) -> list[Prompt]:
    """Requests that sample the poison sooner, later, or not at all."""
    biased = {"temperature": 1.0, "logit_bias": {poison: 2.5}, "max_tokens": 14, "logprobs": 2}
    return [prompt(number, [5 + number, 6, 7], seed=number, **biased) for number in range(16)]


@pytest.mark.parametrize("backend", INVARIANT_BACKENDS)
def test_nan_behind_a_draft_matters_only_where_a_token_is_drawn(tmp_path, backend):
    poison = 306
    model = load_on(backend, tiny_model(tmp_path, "llama", poison=poison))
    alone = [answer for asked in dangerous(poison) for answer in engine_of(model).run(asked)]
    failed = [answer for answer in alone if answer.error is not None]
    assert 0 < len(failed) < len(alone) and any(len(answer.tokens) > 3 for answer in failed)
    assert all(len(answer.logprobs) == len(answer.tokens) for answer in alone)
    for seed in range(1 if backend == "invariant" else 3):  # torch takes long
        engine = engine_of(model, drafts=seed)
        draft_erratically(engine.runner, seed, wrong=poison)
        assert engine.run(*expecting(dangerous(poison), alone)) == alone
        engine.scheduler.check()


@for_each("backend", BACKENDS)
def test_values_that_an_earlier_request_left_in_a_block_are_never_read(tmp_path, backend):
    model = load_on(backend, tiny_model(tmp_path, "llama"))
    limits = {"num_blocks": 24, "max_num_batched_tokens": 64}
    expected = engine_of(model, **limits).run(*requests(count=6))
    engine = engine_of(model, **limits)
    for part in model.backend.on_host(engine.runner.memory.parts):
        part.view(numpy.uint8).fill(NAN_BYTE)
    assert engine.run(*requests(count=6)) == expected
