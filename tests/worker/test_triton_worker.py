"""The worker on a GPU's kernels, in Triton's interpreter: real plans, mixed steps, captured steps, adapters, memory.

In one process, with the real scheduler and the real runner, and tiny models. Slow, so the quick tests ask for little.
"""

from penstock.kernels.arrays import BFLOAT16

from builders.interpreted import on_triton  # isort: skip  before anything that imports triton

import json
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy
import pytest
import torch
from builders.adapters import adapter
from builders.backends import load_on
from builders.cases import for_each
from builders.erratic_drafts import draft_erratically
from builders.hand_planned import new, step
from builders.quantized_model import Form, mixed_model, quantization_config
from builders.runner_harness import Answer, engine_of, expecting, prompt, slotted_runner
from builders.tiny_model import tiny_model
from triton.runtime.interpreter import GridExecutor

from penstock.engine.admission.limits import DraftLimits
from penstock.protocol.conversion import Conversion
from penstock.protocol.errors import ConfigError
from penstock.protocol.messages import Prompt
from penstock.protocol.wire import column
from penstock.worker.backends.backend import BackendOptions
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.backends.triton.backend import TritonBackend
from penstock.worker.convert.convert import convert
from penstock.worker.drafting.histories import CopiedHistories, OwnHistories
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.runner import Runner
from penstock.worker.start.model import Model

# An interpreter takes long for every tile of every product.
SMALL = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 32}
SAMPLED = ({}, {"temperature": 1.0, "top_p": 0.9}, {"temperature": 0.8, "top_k": 20, "repetition_penalty": 1.2})


def requests(count: int = 2, sampled: bool = False, longer: int = 0, **params: Any) -> list[Prompt]:
    """Of unlike lengths, all of which begin alike."""
    kinds = [SAMPLED[number % len(SAMPLED)] if sampled else {} for number in range(count)]
    common = [(7 * position) % 50 + 5 for position in range(9)]
    return [
        prompt(number, common + [number + 3] * number, seed=number, max_tokens=2 + longer + number, **kind, **params)
        for number, kind in enumerate(kinds)
    ]


def answers(model: Model, asked: list[Prompt], budget: int = 512, **shape) -> list[Answer]:
    return engine_of(model, max_num_batched_tokens=budget, **shape).run(*asked)


# By family, what its checkpoint has otherwise.
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3": {"num_hidden_layers": 1, **SMALL},
    "mistral": {"num_hidden_layers": 1, "sliding_window": 7},
    "olmo2": {},  # norms behind the parts
    "glm4": {},  # norms around them, pairs of a half of each head
    "gemma3_text": {"num_hidden_layers": 6, "final_logit_softcapping": 5.0},  # weights less one, two ropes, gelu
    "granite": {},  # factors everywhere
    "cohere": {},  # the mean taken off, parallel parts
    "nemotron": {},  # a bias of norms, no gate, relu²
    "lfm2": {"num_hidden_layers": 2, "full_attn_idxs": [1], "layer_types": None, "vocab_size": 60},
    "qwen3_5_text": {},
    "qwen3_moe": {"num_hidden_layers": 1, "num_experts": 3, "num_experts_per_tok": 2, **SMALL},
    "mixtral": {"num_hidden_layers": 1},
    "qwen2_moe": {"num_hidden_layers": 1},  # its shared expert has a gate
    "ernie4_5_moe": {},  # a dense layer first, a bias of the choice, shared experts
    "olmoe": {"num_hidden_layers": 1},  # a norm of all heads together
    "glm4_moe": {},  # sigmoid scores
    "gpt_oss": {},  # biases, another activation, sinks
}
# The others' layers are those of the tests with adapters and with drafts, and kernels are tried one by one.
QUICK = ("lfm2", "qwen3_moe")


@pytest.mark.parametrize(
    "family", [family if family in QUICK else pytest.param(family, marks=pytest.mark.long) for family in FAMILIES]
)
def test_its_greedy_answers_are_the_processors(tmp_path, family):
    folder = tiny_model(tmp_path, family, **{"vocab_size": 101, **FAMILIES[family]})
    expected = [answer.tokens for answer in answers(load_on("invariant", folder), requests())]
    model = on_triton(folder)
    assert [answer.tokens for answer in answers(model, requests(), budget=8)] == expected
    assert model.forward_pass.captures_steps


@for_each(
    "family, given, named",
    [("gemma2", {}, "soft cap"), ("stablelm", {"qk_layernorm": True}, "mean"), ("youtu", {}, "latents")],
)
def test_models_and_formats_that_a_gpu_has_no_kernels_for_are_refused_by_name(tmp_path, family, given, named):
    with pytest.raises(ConfigError, match=f"{family} .*{named}.* device='cpu'"):
        on_triton(tiny_model(tmp_path, family, **given))
    backend = TritonBackend.create(TensorDevice(torch.device("cpu")), BFLOAT16, Parallel(), BackendOptions())
    assert backend.kv_kind("int8") == "int8"
    with pytest.raises(ConfigError, match="kv_cache_dtype='uint4' is for processors; a GPU has fp32, fp16, bf16, int8"):
        backend.kv_kind("uint4")


def test_experts_of_a_layer_in_unlike_formats_are_refused_by_name(tmp_path):
    def form_of(module: str) -> Form | None:
        return Form("awq") if ".experts." in module and ".experts.5." not in module else None

    sizes = {"hidden_size": 64, "moe_intermediate_size": 64}
    folder, _ = mixed_model(tmp_path, form_of, quantization_config(Form("awq")), "qwen3_moe", **sizes)
    with pytest.raises(ConfigError, match=r"layers\.0\.mlp\.experts: Expert 5 is stored as .* before it as int4"):
        on_triton(folder)


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"options": BackendOptions(captures_steps=False)}])
def test_requests_that_outgrow_the_trained_context_are_rotated_as_on_the_processor(tmp_path, options):
    rope = {"rope_type": "dynamic", "factor": 4.0}
    folder = tiny_model(tmp_path, "llama", num_hidden_layers=1, max_position_embeddings=8, rope=rope)
    expected = [answer.tokens for answer in answers(load_on("native", folder), requests())]
    found = answers(on_triton(folder, **options), requests(), budget=8)
    assert [answer.tokens for answer in found] == expected


@pytest.mark.long
def test_layers_of_unlike_kinds_answer_alike_whether_converted_first_or_while_loading(tmp_path):
    folder = tiny_model(tmp_path / "original", "qwen3", dtype="bfloat16", num_hidden_layers=2, intermediate_size=128)
    kinds = json.dumps({"*": "int4", "*.1.self_attn.*": "int8", "*.0.mlp.down_proj": None, "lm_head": "wint8"})
    convert(Conversion(str(folder), str(folder), str(tmp_path / "converted"), kinds), lambda said: None)
    model, asked = on_triton(folder, quantization=kinds), requests(2, sampled=True)
    found = [layer.mlp.down.own.weight.weight.kind for layer in model.decoder.layers]
    assert (found, model.decoder.head.own.weight.weight.kind) == (["bf16", "int4"], "int8")
    assert answers(on_triton(tmp_path / "converted"), asked) == answers(model, asked)


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
@pytest.mark.parametrize("kind, kv_kind", [(None, "bf16"), ("int8", "int8"), ("int4", "int8")])
def test_in_the_deterministic_form_company_changes_no_bit(tmp_path, family, kind, kv_kind):
    folder = tiny_model(tmp_path, family, dtype="bfloat16", **FAMILIES[family] | {"num_hidden_layers": 2})
    model = on_triton(folder, options=BackendOptions(deterministic=True), quantization=kind)
    model, asked = replace(model, kv_default=kv_kind), requests(4, sampled=True)
    alone = [answer for each in asked for answer in answers(model, [each])]
    assert answers(model, asked) == alone
    assert answers(model, asked, budget=8) == alone, "in chunks"
    assert answers(model, asked, budget=8, layered=1) == alone, "layer by layer"
    assert answers(model, asked, num_blocks=3) == alone, "preempted"
    assert answers(model, expecting(asked, alone), budget=16, drafts=1) == alone, "with drafts"


class CopiedAndOwn:
    """Histories that are copied from the device, token by token those that it has."""

    def __init__(self, runner: Runner) -> None:
        self.copied, self.own = CopiedHistories(runner.table), OwnHistories(runner.table)

    def enter(self, slot: int, token_ids: bytes) -> None:
        self.copied.enter(slot, token_ids)

    def read(self, slots: list[int]) -> list[numpy.ndarray]:
        found = self.copied.read(slots)
        for copied, own in zip(found, self.own.read(slots), strict=True):
            assert copied.tolist() == own.tolist()
        return found


# The family, how the model is loaded, and the format of keys and values.
DRAFTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "captured": ("qwen3", {}, "fp32"),
    "int8": ("qwen3", {"dtype": "bfloat16", "quantization": "int8"}, "int8"),
    "int4, experts": ("qwen3_moe", {"dtype": "bfloat16", "quantization": "int4"}, "bf16"),
    "window": ("mistral", {}, "fp32"),
    "states": ("lfm2", {}, "fp32"),
    "launched": ("qwen3", {}, "fp32"),
}


@pytest.mark.parametrize(
    "case", [name if name == "captured" else pytest.param(name, marks=pytest.mark.long) for name in DRAFTED]
)
def test_whatever_is_drafted_answers_are_as_alone(tmp_path, case):
    family, loaded, kv_kind = DRAFTED[case]
    options = BackendOptions(deterministic=True, drafts=True, captures_steps=case != "launched")
    model = on_triton(tiny_model(tmp_path, family, **FAMILIES[family]), options=options, **loaded)
    model = replace(model, kv_default=kv_kind)
    count, longer = (2, 4) if case == "captured" else (3, 6)
    alone = [answers(model, [each])[0] for each in requests(count, sampled=True, longer=longer, logprobs=1)]
    captured: set[tuple[int, int]] = set()
    drafted = accepted = 0
    for seed, shape in enumerate(({"num_blocks": 3},) if case == "captured" else ({}, {"num_blocks": 3})):
        engine = engine_of(model, draft_limits=DraftLimits(each=9, all=64), num_states=80, **shape)
        draft_erratically(engine.runner, seed)
        engine.runner.drafting._histories = CopiedAndOwn(engine.runner)
        asked = requests(count, sampled=True, longer=longer, logprobs=1)
        for each, answer in zip(asked, alone, strict=True):
            each.expected = [column(answer.tokens)]
        assert engine.run(*asked) == alone, shape
        engine.scheduler.check()
        drafted += engine.scheduler.counters.draft_tokens
        accepted += engine.scheduler.counters.accepted_tokens
        captured |= {key.shape for key in model.forward_pass._graphs if key.tokens > 1}
    assert 0 < accepted < drafted
    assert (len(captured) > 1) == model.forward_pass.captures_steps


def test_rows_have_their_own_adapters_in_prompts_and_in_captured_steps(tmp_path):
    folder = tiny_model(tmp_path / "model", "llama", num_hidden_layers=1, **SMALL)
    own = adapter(tmp_path / "adapter", folder, rank=5)
    found = []
    for load in (partial(load_on, "native"), on_triton):
        model = load(folder, max_loras=2, max_lora_rank=8)
        model.adapters.load(1, own)
        runner = slotted_runner(model)
        entered = [new(0, range(5, 12)), msgspec.structs.replace(new(1, range(5, 12)), adapter=1)]
        steps = [step(runner, 0, [(0, 7, [3, 1]), (1, 7, [2, 4])], new=entered)]
        found.append([*steps, step(runner, 1, [(0, 1, []), (1, 1, [])])])
    assert found[1] == found[0]
    assert any(first != second for first, second in found[0])


def test_a_layer_of_an_answer_is_six_launches(tmp_path, monkeypatch):
    """The norms, the activation and the sums with the stream have none of their own."""
    launched: list[str] = []
    launch = GridExecutor.__call__

    def noted(kernel: GridExecutor, *given, **named) -> None:
        launched.append(kernel.fn.__name__)
        launch(kernel, *given, **named)

    monkeypatch.setattr(GridExecutor, "__call__", noted)
    counts = []
    for layers in (1, 2):
        folder = tiny_model(tmp_path / str(layers), "qwen3", num_hidden_layers=layers, **SMALL)
        runner = slotted_runner(on_triton(folder), num_slots=1)
        step(runner, 0, [(0, 2, [3])], new=[new(0, [5, 6])])
        step(runner, 1, [(0, 1, [])])
        launched.clear()
        step(runner, 2, [(0, 1, [])])
        counts.append(len(launched))
    assert counts[1] - counts[0] == 6, launched
