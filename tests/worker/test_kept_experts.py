"""Packed experts that were kept on disk: the next start maps them, reads none of them, and answers the same."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from builders.backends import load_on
from builders.float8_model import FLOAT8_FORMS
from builders.hand_driven import HandDriven
from builders.mxfp4_model import mxfp4_model
from builders.quantized_model import Form, mixed_model, quantization_config
from builders.tiny_model import tiny_model

from penstock.worker.backends.native import backend as native_backend
from penstock.worker.models.load import Model
from penstock.worker.parallel import Parallel

SHAPE = {"hidden_size": 64, "moe_intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 32}
FLOAT8 = next(form for form in FLOAT8_FORMS if form.name == "deepseek")


def by_expert(form: Form) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        return mixed_model(folder, lambda module: form, quantization_config(form), "qwen3_moe", **SHAPE)[0]

    return write


def unlike_experts(folder: Path) -> Path:
    """Some of whose experts no tool quantized."""

    def form_of(module: str) -> Form | None:
        return Form("awq", is_symmetric=False) if ".experts." in module and ".experts.5." not in module else None

    config = quantization_config(Form("awq")) | {
        "modules_to_not_convert": ["self_attn", "mlp.gate", "lm_head", "experts.5."]
    }
    return mixed_model(folder, form_of, config, "qwen3_moe", **SHAPE)[0]


MODELS: dict[str, tuple[Callable[[Path], Path], dict]] = {
    "mxfp4": (mxfp4_model, {}),
    "mxfp4 beside int8": (mxfp4_model, {"quantization": "int8"}),
    "mxfp4, a part of its width": (mxfp4_model, {"ranks": Parallel(1, 2)}),
    "mxfp4, some of its experts": (mxfp4_model, {"ranks": Parallel(1, 2), "expert_parallel": True}),
    "one tensor of floats, as int4": (lambda folder: tiny_model(folder, "gpt_oss"), {"quantization": "int4"}),
    "gptq": (by_expert(Form("gptq")), {}),
    "awq": (by_expert(Form("awq", is_symmetric=False)), {}),
    "8 bits by row": (by_expert(Form("int-quantized", bits=8, group_size=0)), {}),
    "unlike experts": (unlike_experts, {}),
    "unlike products, of which one is widened": (
        lambda folder: tiny_model(folder, "qwen3_moe", **SHAPE),
        {"quantization": json.dumps({"*": "int8", "*.gate_proj": "int4", "*.up_proj": "int4"})},
    ),
    "8-bit floats": (
        lambda folder: mixed_model(folder, lambda module: FLOAT8, FLOAT8.config, "qwen3_moe", **SHAPE)[0],
        {"quantization": "int4"},
    ),
}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native_backend, "_WORTH_KEEPING", 0)


def experts_of(model: Model) -> list:
    mixtures = [layer.mlp.experts for layer in model.decoder.layers if hasattr(layer.mlp, "experts")]
    return [weight for mixture in mixtures for weight in (mixture.gate_up, mixture.down)]


def logits(model: Model) -> torch.Tensor:
    driven = HandDriven(model)
    return driven.step([(driven.add(list(range(5, 45))), 40)], every_token=True)


@pytest.mark.parametrize("name", MODELS)
def test_the_second_start_maps_them_and_answers_the_same(tmp_path, name):
    write, options = MODELS[name]
    folder = write(tmp_path / "model")
    first = load_on("native", folder, **options)
    assert first.cache.mapped_bytes == 0
    first.cache.write_in_background()
    first.cache.wait()
    second = load_on("native", folder, **options)
    made, mapped = experts_of(first), experts_of(second)
    assert second.report.leftovers == first.report.leftovers and len(mapped) >= 4
    path = str(second.cache.path)
    maps = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if path in line]
    spans = [(int(first, 16), int(end, 16)) for first, end in maps]
    for before, after in zip(made, mapped, strict=True):
        assert (after.kind, after.group_size, after.has_zeros) == (before.kind, before.group_size, before.has_zeros)
        assert torch.equal(after.data, before.data)
        assert any(start <= after.data.data_ptr() < end for start, end in spans)
    if "ranks" not in options:  # it would wait for the other one
        assert torch.equal(logits(second), logits(first))
