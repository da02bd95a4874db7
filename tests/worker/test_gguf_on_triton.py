"""GGUF files on a GPU's kernels, in Triton's interpreter: blocks stay as they are, and answers are the processor's from
the same numbers."""

from builders.interpreted import on_triton  # isort: skip  before anything that imports triton

from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.gguf_models import as_gguf, q4_k_m
from builders.runner_harness import TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.kernels.torch.packed.gpu_blocks import GpuBlocks, unpacked_blocks
from penstock.kernels.triton.products.linear import JoinedWeight
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.model import Model
from penstock.worker.weights.weight_bytes import estimated_weight_bytes

from .test_gguf_types import K_SHAPES, MIXTURES

OTHERS = ("qwen3, Q4_K_M", "llama, Q5_K", "llama, a type a part", "phi3, a type a part", "gpt-oss, MXFP4")


def answers(model: Model) -> list[list[int]]:
    """Of two requests, the second prompt in chunks."""
    asked = [prompt(number, [(7 * place + number) % 290 + 5 for place in range(5)], max_tokens=2) for number in (1, 2)]
    engine = TinyEngine(slotted_runner(model), max_num_batched_tokens=7)
    return [list(answer.tokens) for answer in engine.run(*asked)]


def files(folder: Path, name: str, **overrides: Any) -> tuple[Path, Path]:
    """In blocks, and with the same numbers in floats."""
    family, shape, types = MIXTURES[name]
    small = {"num_hidden_layers": 1} | ({"num_experts": 6, "num_experts_per_tok": 2} if "moe" in family else {})
    checkpoint = tiny_model(folder / "checkpoint", family, **small, **shape | overrides)
    widened = as_gguf(checkpoint, folder / "widened", types, is_widened=True)
    return as_gguf(checkpoint, folder / "in blocks", types), widened


@pytest.mark.parametrize(
    "name", ["qwen3 moe, Q4_K_M", *(pytest.param(each, marks=pytest.mark.long) for each in OTHERS)]
)
def test_its_greedy_answers_are_the_processors_from_the_same_numbers(name: str, tmp_path: Path):
    in_blocks, widened = files(tmp_path, name)
    expected = answers(load_on("invariant", widened, dtype="float32"))
    assert answers(on_triton(in_blocks, dtype="float32")) == expected


@pytest.mark.long
def test_a_head_of_its_own_and_16_bit_numbers_give_the_same_as_widened(tmp_path: Path):
    in_blocks, widened = files(tmp_path, "qwen3, Q4_K_M", tie_word_embeddings=False)
    model = on_triton(in_blocks, dtype="bfloat16")
    assert model.decoder.head.own.weight.kinds == ("q6_k",)
    assert answers(model) == answers(on_triton(widened, dtype="bfloat16"))


def test_blocks_are_kept_and_all_else_is_widened(tmp_path: Path):
    checkpoint = tiny_model(tmp_path / "checkpoint", "qwen3", **K_SHAPES, head_dim=64, tie_word_embeddings=True)
    folder = as_gguf(checkpoint, tmp_path / "model", lambda name: "BF16" if "ffn_down" in name else q4_k_m(name))
    model = on_triton(folder, dtype="float16")
    layer = model.decoder.layers[0]
    assert isinstance(layer.attention.qkv.weight.weight, JoinedWeight)
    assert layer.attention.qkv.weight.kinds == ("q4_k", "q6_k")
    assert isinstance(layer.mlp.gate_up.weight.weight, GpuBlocks)
    assert layer.mlp.down.own.weight.kinds == model.decoder.head.own.weight.kinds == ("fp16",)
    assert model.report.kinds == ("q4_k", "q6_k", "fp16")
    assert estimated_weight_bytes(model.config, model.decoder.placement.formats, 1) > 2 * model.vocab_size * 256
    asked = on_triton(folder, dtype="float16", quantization="int8").decoder
    assert asked.layers[0].mlp.gate_up.weight.kinds == ("q4_k",)
    assert asked.layers[0].mlp.down.own.weight.kinds == ("int8",)


def test_experts_are_kept_and_widened_where_gate_and_up_are_unlike(tmp_path: Path):
    name = "qwen3 moe, Q4_K_M"
    in_blocks, _ = files(tmp_path, name)
    experts = on_triton(in_blocks, dtype="bfloat16").decoder.layers[0].mlp.experts
    assert (experts.gate_up.kinds, experts.down.kinds) == (("q4_k",), ("q6_k",))

    def types(part: str) -> str:
        return "Q8_0" if "ffn_up" in part else q4_k_m(part)

    unlike = as_gguf(tmp_path / "checkpoint", tmp_path / "unlike", types)
    experts = on_triton(unlike, dtype="bfloat16").decoder.layers[0].mlp.experts
    assert (experts.gate_up.kinds, experts.down.kinds) == (("bf16",), ("q6_k",))


@for_each("expert_parallel", [False, True])
def test_ranks_share_experts_by_width_where_blocks_end_or_whole(expert_parallel: bool, tmp_path: Path):
    in_blocks, widened = files(tmp_path, "qwen3 moe, Q4_K_M", moe_intermediate_size=512)
    ranks = [Parallel(rank, 2) for rank in range(2)]
    options: dict[str, Any] = {"dtype": "float32", "expert_parallel": expert_parallel}
    found = [on_triton(in_blocks, ranks=each, **options).decoder.layers[0].mlp.experts for each in ranks]
    assert [(each.gate_up.kinds, each.down.kinds) for each in found] == [(("q4_k",), ("q6_k",))] * 2
    whole = on_triton(widened, dtype="float32").decoder.layers[0].mlp.experts.down
    for number in range(whole.num_experts):
        if expert_parallel:
            rank, own = divmod(number, found[0].num_experts)
            numbers = unpacked_blocks(found[rank].down.of(own))
        else:
            numbers = torch.cat([unpacked_blocks(each.down.of(number)) for each in found], 1)
        assert torch.equal(numbers, whole.of(number).values)


def test_ranks_share_blocks_and_widen_what_a_cut_goes_through(tmp_path: Path):
    in_blocks, widened = files(tmp_path, "qwen3, Q4_K_M", head_dim=32, intermediate_size=768)
    layers = [on_triton(in_blocks, dtype="float32", ranks=Parallel(rank, 2)).decoder.layers[0] for rank in range(2)]
    assert [layer.attention.output.own.weight.kinds for layer in layers] == [("fp32",)] * 2
    downs = [layer.mlp.down.own.weight.weight for layer in layers]
    assert [(down.kind, down.in_features) for down in downs] == [("q6_k", 256), ("q6_k", 512)]
    whole = on_triton(widened, dtype="float32").decoder.layers[0].mlp.down.own.weight.weight.values
    assert torch.equal(torch.cat([unpacked_blocks(down) for down in downs], 1), whole)
