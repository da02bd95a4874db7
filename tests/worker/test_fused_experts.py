"""Experts in one tensor for all, as transformers has them in memory, are read as those with tensors of their own."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import logits_of as computed
from builders.compared_models import opened
from builders.float8_forms import FLOAT8_FORMS
from builders.quantized_model import float8_model
from builders.quantized_parts import floats
from builders.tiny_configs import change_config
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file

from penstock.protocol.errors import ConfigError
from penstock.worker.start.load import load_model

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
