"""What a start says of experts that take more memory than they were given, and that its figures count it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.cases import for_each
from builders.gguf_models import as_gguf
from builders.mxfp4_model import mxfp4_model
from builders.native_variants import available_variants
from builders.quantized_model import Form, mixed_model, quantization_config
from builders.tiny_model import tiny_model

from penstock.kernels import WeightFormat
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.worker.description.config import read_config
from penstock.worker.start.load import load_model
from penstock.worker.start.start import Start
from penstock.worker.weights.layer_formats import LayerFormats
from penstock.worker.weights.weight_bytes import estimated_weight_bytes

pytestmark = pytest.mark.skipif(not available_variants(), reason="there are no kernels for integers here")
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "moe_intermediate_size": 64}
UNLIKE = json.dumps({"*": "int4", "*.experts.*.down_proj": "int8"})


def plan_of(folder: Path, directory: Path, **options: Any) -> MemoryPlan:
    config = EngineConfig(model=str(folder), kv_cache_memory=4 << 20, **options)
    start = Start(Launch(config, str(folder), str(folder), 1), 0, directory)
    try:
        return start.plan()
    finally:
        start.close()


def test_experts_with_products_of_unlike_kinds_are_noted_and_one_is_widened_in_its_place(tmp_path):
    folder = tiny_model(tmp_path / "model", "qwen3_moe", **SIZES)
    [note] = list(plan_of(folder, tmp_path, quantization=UNLIKE).notes)
    assert "In 2 layers" in note and "the same kind" in note
    assert list(plan_of(folder, tmp_path, quantization="int4").notes) == []
    model = load_model(folder, quantization=UNLIKE)
    experts = [layer.mlp.experts for layer in model.decoder.layers]
    # The narrow one would lie beside it for nothing.
    assert {(each.gate_up.kind, each.down.kind) for each in experts} == {("int8", "int8")}


def mxfp4(folder: Path) -> Path:
    return mxfp4_model(folder, hidden_size=64, intermediate_size=64)


def gptq(bits: int, group_size: int = 32) -> Callable[[Path], Path]:
    form = Form("gptq", bits=bits, group_size=group_size)
    config = quantization_config(form)
    return lambda folder: mixed_model(folder, lambda module: form, config, "qwen3_moe", **SIZES)[0]


def in_blocks(folder: Path) -> Path:
    checkpoint = tiny_model(folder, "qwen3", hidden_size=256, head_dim=64, intermediate_size=256)
    types = {"attn_v.": "Q6_K", "attn_q.": "Q4_K", "attn_k.": "Q4_K"}
    own = lambda name: next((type for part, type in types.items() if part in name), "Q5_K")  # noqa: E731
    return as_gguf(checkpoint, folder.with_name("translated"), own)


@for_each(
    "written, quantization, shown",
    [
        (mxfp4, None, "mxfp4, bfloat16"),
        (mxfp4, "int8", "int8, mxfp4"),
        (mxfp4, '{"*.experts.*": null}', "bfloat16"),
        (gptq(bits=4), None, "int4, float32"),  # whose head is in floats
        (gptq(bits=8), None, "int8, float32"),
        (gptq(bits=8, group_size=0), None, "int8, float32"),
        (in_blocks, None, "q4_k, q5_k, q6_k"),
    ],
)
def test_the_table_names_the_numbers_that_products_are_computed_with(tmp_path, written, quantization, shown):
    found = plan_of(written(tmp_path / "model"), tmp_path, quantization=quantization).dtype
    assert sorted(found.split(", ")) == sorted(shown.split(", "))


@for_each("layout", ["gptq", "pack-quantized"])
def test_experts_in_the_order_of_activations_are_noted_and_planned_with_8_bits(tmp_path, layout):
    plain, ordered = (Form(layout, is_ordered=is_ordered) for is_ordered in (False, True))
    config = quantization_config(ordered)
    if layout == "pack-quantized":
        config["config_groups"]["group_0"]["weights"]["actorder"] = "group"
    folder, _ = mixed_model(tmp_path / "ordered", lambda module: ordered, config, "qwen3_moe", **SIZES)
    [note] = list(plan_of(folder, tmp_path).notes)
    assert "stored in 4 bits" in note and "take 8 bits here" in note
    other, _ = mixed_model(tmp_path / "plain", lambda module: plain, quantization_config(plain), "qwen3_moe", **SIZES)
    assert list(plan_of(other, tmp_path).notes) == []
    estimates = [
        estimated_weight_bytes(read_config(each), LayerFormats(WeightFormat("bf16"), {}), 1) for each in (folder, other)
    ]
    assert estimates[0] - estimates[1] == 2 * 12 * 3 * 64 * 64 // 2  # layers, experts, projections, half a byte each
