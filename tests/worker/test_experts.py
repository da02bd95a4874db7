"""Experts in one tensor for all, as transformers has them in memory, are read as those with tensors of their own; a
start says what they take; and each token meets those that learnt for it.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import logits_of as computed
from builders.compared_models import opened
from builders.float8_forms import FLOAT8_FORMS
from builders.gguf_models import as_gguf
from builders.hand_driven import HandDriven
from builders.native_variants import needs_variant
from builders.quantized_model import Form, float8_model, mixed_model, mxfp4_model, quantization_config
from builders.quantized_parts import floats
from builders.tiny_configs import change_config
from builders.tiny_model import tiny_model
from builders.trained_mixture import FOLDER, LONGEST, Question, changed, ended, questions, share_right
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.kernels import WeightFormat
from penstock.protocol.errors import ConfigError
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.worker.description.config import read_config
from penstock.worker.start.load import load_model
from penstock.worker.start.start import Start
from penstock.worker.weights.layer_formats import LayerFormats
from penstock.worker.weights.weight_bytes import estimated_weight_bytes

FLOAT8 = {form.name: form for form in FLOAT8_FORMS}
SIZES = {"moe_intermediate_size": 64, "num_experts": 5, "num_experts_per_tok": 2}
_OWN = re.compile(r"(.*\.experts\.)(\d+)\.(gate|up|down)_proj\.(.*)")


def fused(folder: Path) -> Path:
    """The same checkpoint with its experts fused."""
    tensors: dict[str, torch.Tensor] = {}
    own: dict[tuple[str, str], dict[str, dict[int, torch.Tensor]]] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if match := _OWN.fullmatch(name):
            experts, number, part, kind = match.groups()
            own.setdefault((experts, kind), {}).setdefault(part, {})[int(number)] = tensor
        else:
            tensors[name] = tensor
    for (experts, kind), parts in own.items():
        stacked = {part: torch.stack([found[number] for number in sorted(found)]) for part, found in parts.items()}
        ending = kind.removeprefix("weight")
        tensors[f"{experts}gate_up_proj{ending}"] = torch.cat((stacked["gate"], stacked["up"]), 1)
        tensors[f"{experts}down_proj{ending}"] = stacked["down"]
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def as_qwen3_vl(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["Qwen3VLMoeTextModel"], "model_type": "qwen3_vl_moe_text"}
    config["rope_parameters"] |= {"mrope_section": [6, 5, 5]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def transposed(folder: Path) -> Path:
    """The same checkpoint with its fused experts transposed."""
    tensors = load_file(folder / "model.safetensors")
    for name in tensors:
        if re.search(r"experts\.(gate_up|down)_proj", name):
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
    save_file(tensors, folder / "model.safetensors")
    return folder


def logits_of(folder: Path, backend: str = "fast", **options: Any) -> torch.Tensor:
    model = load_on(backend, folder, **options)
    assert model.report.leftovers == []
    return computed(model, range(5, 45))


@for_each("family", ["mixtral", "qwen2_moe", "ernie4_5_moe", "olmoe", "deepseek_v3", "minimax_m2", "hy_v3", "gpt_oss"])
def test_what_transformers_saves_as_it_has_it_in_memory(tmp_path, family):
    from transformers import AutoModelForCausalLM

    original = tiny_model(tmp_path / "original", family, num_nextn_predict_layers=0)
    model = AutoModelForCausalLM.from_pretrained(original, dtype="auto")
    model.save_pretrained(tmp_path / "saved", save_original_format=False)
    assert torch.equal(logits_of(original), logits_of(tmp_path / "saved"))


WIDER = SIZES | dict(moe_intermediate_size=96, head_dim=32)
# The family, the form of its 8-bit floats, what it has otherwise, and whether its experts are transposed.
MODELS: list[tuple[str, str | None, dict[str, Any], bool]] = [
    *((family, None, {}, False) for family in ("qwen3_moe", "qwen2_moe", "ernie4_5_moe", "glm4_moe_lite")),
    *(("qwen3_moe", name, SIZES, False) for name in ("deepseek", "deepseek-128", "compressed-block")),
    *(("qwen3_moe", name, WIDER, True) for name in (None, "deepseek", "compressed-channel")),  # as Qwen3-VL's are
]


@for_each("family, name, sizes, is_transposed", MODELS)
def test_as_floats_and_as_8_bit_floats_with_scales(tmp_path, family, name, sizes, is_transposed):
    if name is None:
        folder = tiny_model(tmp_path, family, num_nextn_predict_layers=0, **sizes)
    else:
        folder, _ = float8_model(tmp_path, FLOAT8[name], family, **sizes)
    folder = as_qwen3_vl(folder) if is_transposed else folder
    expected = [logits_of(folder, backend) for backend in ("fast", "native")]
    folder = transposed(fused(folder)) if is_transposed else fused(folder)
    assert all(torch.equal(logits_of(folder, ("fast", "native")[n]), expected[n]) for n in (0, 1))


@for_each("is_transposed", [False, True])
def test_a_rank_reads_its_part_of_each_expert(is_transposed, tmp_path):
    folder = fused(float8_model(tmp_path, FLOAT8["deepseek"], "qwen3_moe", **SIZES)[0])
    folder = transposed(as_qwen3_vl(folder)) if is_transposed else folder
    checkpoint = opened(folder)
    for module, shape in {"gate_proj": (64, 64), "up_proj": (64, 64), "down_proj": (64, 64)}.items():
        name = f"model.layers.1.mlp.experts.3.{module}.weight"
        whole = floats(checkpoint.matrix(name, shape))
        for part in ((0, 16, 48), (1, 32, 64)):
            found = floats(checkpoint.matrix(name, shape, part))
            assert torch.equal(found, whole.narrow(part[0], part[1], part[2] - part[1])), (module, part)


def test_blocks_across_both_projections_are_refused_by_name(tmp_path):
    folder = fused(float8_model(tmp_path / "odd", FLOAT8["deepseek"], "qwen3_moe", **SIZES)[0])
    tensors = load_file(folder / "model.safetensors")
    for name in tensors:
        if name.endswith("gate_up_proj_scale_inv"):
            tensors[name] = tensors[name][:, :3].contiguous()
    save_file(tensors, folder / "model.safetensors")
    # Of 2 × 96 rows in blocks of 128 the second one begins among the up's, which the first one has 32 of.
    even, _ = float8_model(tmp_path / "even", FLOAT8["deepseek-128"], "qwen3_moe", moe_intermediate_size=96)
    for number, each in ((3, folder), (2, fused(even))):
        with pytest.raises(ConfigError, match=rf"gate_up_proj_scale_inv has {number} rows of scales .* across both"):
            load_model(each)


def test_a_family_that_always_fuses_them_refuses_their_8_bit_floats_by_name(tmp_path):
    folder = tiny_model(tmp_path, "gpt_oss")
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith("experts.down_proj")]:
        tensors[f"{name}_scale_inv"] = torch.ones(len(tensors[name]), 1, 1)
        tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors")
    change_config(folder, quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic"})
    with pytest.raises(ConfigError, match=r"experts\.down_proj_scale_inv belongs to experts in 8-bit floats"):
        load_model(folder)


# --- what a start says of experts that take more memory than they were given ------------------------------------------


WIDE = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "moe_intermediate_size": 64}
UNLIKE = json.dumps({"*": "int4", "*.experts.*.down_proj": "int8"})


def plan_of(folder: Path, directory: Path, **options: Any) -> MemoryPlan:
    config = EngineConfig(model=str(folder), kv_cache_memory=4 << 20, **options)
    start = Start(Launch(config, str(folder), str(folder), 1), 0, directory)
    try:
        return start.plan()
    finally:
        start.close()


@needs_variant
def test_experts_with_products_of_unlike_kinds_are_noted_and_one_is_widened_in_its_place(tmp_path):
    folder = tiny_model(tmp_path / "model", "qwen3_moe", **WIDE)
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
    return lambda folder: mixed_model(folder, lambda module: form, config, "qwen3_moe", **WIDE)[0]


def in_blocks(folder: Path) -> Path:
    checkpoint = tiny_model(folder, "qwen3", hidden_size=256, head_dim=64, intermediate_size=256)
    types = {"attn_v.": "Q6_K", "attn_q.": "Q4_K", "attn_k.": "Q4_K"}
    own = lambda name: next((type for part, type in types.items() if part in name), "Q5_K")  # noqa: E731
    return as_gguf(checkpoint, folder.with_name("translated"), own)


@needs_variant
@for_each("written, quantization, shown", [
    (mxfp4, None, "mxfp4, bfloat16"),
    (mxfp4, "int8", "int8, mxfp4"),
    (mxfp4, '{"*.experts.*": null}', "bfloat16"),
    (gptq(bits=4), None, "int4, float32"),  # whose head is in floats
    (gptq(bits=8), None, "int8, float32"),
    (gptq(bits=8, group_size=0), None, "int8, float32"),
    (in_blocks, None, "q4_k, q5_k, q6_k"),
])  # fmt: skip
def test_the_table_names_the_numbers_that_products_are_computed_with(tmp_path, written, quantization, shown):
    found = plan_of(written(tmp_path / "model"), tmp_path, quantization=quantization).dtype
    assert sorted(found.split(", ")) == sorted(shown.split(", "))


@needs_variant
@for_each("layout", ["gptq", "pack-quantized"])
def test_experts_in_the_order_of_activations_are_noted_and_planned_with_8_bits(tmp_path, layout):
    plain, ordered = (Form(layout, is_ordered=is_ordered) for is_ordered in (False, True))
    config = quantization_config(ordered)
    if layout == "pack-quantized":
        config["config_groups"]["group_0"]["weights"]["actorder"] = "group"
    folder, _ = mixed_model(tmp_path / "ordered", lambda module: ordered, config, "qwen3_moe", **WIDE)
    [note] = list(plan_of(folder, tmp_path).notes)
    assert "stored in 4 bits" in note and "take 8 bits here" in note
    other, _ = mixed_model(tmp_path / "plain", lambda module: plain, quantization_config(plain), "qwen3_moe", **WIDE)
    assert list(plan_of(other, tmp_path).notes) == []
    estimates = [
        estimated_weight_bytes(read_config(each), LayerFormats(WeightFormat("bf16"), {}), 1) for each in (folder, other)
    ]
    assert estimates[0] - estimates[1] == 2 * 12 * 3 * 64 * 64 // 2  # layers, experts, projections, half a byte each


# --- a mixture that has learnt text -----------------------------------------------------------------------------------


@cache
def asked() -> list[Question]:
    return questions(per_kind=24)


def answers(folder: Path, **options: Any) -> list[list[int]]:
    """Run all prompts together, in chunks."""
    driven = HandDriven(load_model(folder, **options))
    rows = [driven.add(question.prompt) for question in asked()]
    driven.greedy(rows, LONGEST, budget=64)
    return [ended(driven.histories[row][len(question.prompt) :]) for row, question in zip(rows, asked(), strict=True)]


def test_it_answers_questions_that_it_was_not_shown_as_transformers_does():
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    right = answers(FOLDER, dtype="float32")
    assert share_right(asked(), right) > 0.85
    for question, tokens in zip(asked(), right, strict=True):
        with torch.inference_mode():
            logits = reference(torch.tensor([question.prompt + tokens])).logits[0, len(question.prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == tokens, question


@for_each("quantization, share", [("int8", 0.85), ("int4", 0.8)])
def test_it_answers_with_quantized_experts(quantization, share):
    assert share_right(asked(), answers(FOLDER, quantization=quantization)) > share


def routed_alike(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every token meets the same experts, equally."""
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items() if name.endswith("mlp.gate.weight")}


def test_its_answers_are_wrong_where_tokens_meet_other_experts(tmp_path):
    assert share_right(asked(), answers(changed(tmp_path / "model", routed_alike), dtype="float32")) < 0.2
