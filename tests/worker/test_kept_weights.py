"""Packed weights that were kept on disk: the next start maps them, reads no matrix, and answers the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import converted, logits_of
from builders.float8_forms import FLOAT8_FORMS
from builders.gguf_models import as_gguf, q4_k_m
from builders.native_variants import needs_variant
from builders.other_layouts import paddle_model
from builders.quantized_model import Form, mixed_model, mxfp4_model, quantization_config
from builders.seeing_models import seeing_model
from builders.tiny_model import tiny_model

from penstock.kernels.cpu.weights.packed import NativeWeight
from penstock.worker.backends.native import backend as native_backend
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.model import Model

pytestmark = needs_variant

SHAPE = {"hidden_size": 64, "moe_intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 32}
FLOAT8 = next(form for form in FLOAT8_FORMS if form.name == "deepseek")
K_SHAPE = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}


def tiny(family: str, **options: Any) -> Callable[[Path], Path]:
    return lambda folder: tiny_model(folder, family, **options)


def by_expert(form: Any) -> Callable[[Path], Path]:
    config = quantization_config(form) if isinstance(form, Form) else form.config
    return lambda folder: mixed_model(folder, lambda module: form, config, "qwen3_moe", **SHAPE)[0]


def unlike_experts(folder: Path) -> Path:
    """Some of whose experts no tool quantized."""

    def form_of(module: str) -> Form | None:
        return Form("awq", is_symmetric=False) if ".experts." in module and ".experts.5." not in module else None

    left_out = {"modules_to_not_convert": ["self_attn", "mlp.gate", "lm_head", "experts.5."]}
    return mixed_model(folder, form_of, quantization_config(Form("awq")) | left_out, "qwen3_moe", **SHAPE)[0]


def in_blocks(family: str, **options: Any) -> Callable[[Path], Path]:
    return lambda folder: as_gguf(tiny_model(folder / "checkpoint", family, **options), folder / "model", q4_k_m)


def of_paddle(folder: Path) -> Path:
    return paddle_model(folder / "copy", tiny_model(folder / "original", "ernie4_5", dtype="bfloat16"))


def cut(folder: Path) -> Path:
    source = tiny_model(folder / "source", "qwen3", dtype="bfloat16", intermediate_size=128)
    return converted(source, folder / "cut", "int8", group_size=32, tensor_parallel_size=2, is_cut=True)


def seeing(folder: Path) -> Path:
    seeing_model(folder, "Qwen3VL")
    return folder


MODELS: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "mxfp4": (mxfp4_model, {}),
    "mxfp4 next to int8": (mxfp4_model, {"quantization": "int8"}),
    "mxfp4, a part of its width": (mxfp4_model, {"ranks": Parallel(1, 2)}),
    "mxfp4, some of its experts": (mxfp4_model, {"ranks": Parallel(1, 2), "expert_parallel": True}),
    "one tensor of floats, as int4": (tiny("gpt_oss"), {"quantization": "int4"}),
    "gptq": (by_expert(Form("gptq")), {}),
    "awq": (by_expert(Form("awq", is_symmetric=False)), {}),
    "8 bits by row": (by_expert(Form("int-quantized", bits=8, group_size=0)), {}),
    "unlike experts": (unlike_experts, {}),
    "unlike products, of which one is widened": (
        tiny("qwen3_moe", **SHAPE),
        {"quantization": json.dumps({"*": "int8", "*.gate_proj": "int4", "*.up_proj": "int4"})},
    ),
    "8-bit floats": (by_expert(FLOAT8), {"quantization": "int4"}),
    "blocks of a GGUF file": (in_blocks("qwen3", **K_SHAPE), {}),
    "experts in blocks": (in_blocks("qwen3_moe", **K_SHAPE, moe_intermediate_size=256), {}),
    "latents in blocks": (in_blocks("deepseek_v3", hidden_size=256), {}),
    "Paddle's layout": (of_paddle, {}),
    "cut for ranks": (cut, {"ranks": Parallel(0, 2)}),
    "one that sees": (seeing, {"quantization": "int8"}),
}


@pytest.fixture(autouse=True)
def everything_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native_backend, "_WORTH_KEEPING", 0)


def started(folder: Path, **options: Any) -> Model:
    """A model whose packed weights are written."""
    model = load_on("native", folder, **options)
    model.cache.write_in_background()
    model.cache.wait()
    return model


def packed_weights(model: Model) -> list[NativeWeight]:
    """Of every layer: experts, or else the MLP."""
    found = []
    for mlp in (layer.mlp for layer in model.decoder.layers):
        has_experts = hasattr(mlp, "experts")
        found += [mlp.experts.gate_up, mlp.experts.down] if has_experts else [mlp.gate_up.weight, mlp.down.own.weight]
    return found


@for_each("name", MODELS)
def test_the_second_start_maps_them_and_answers_the_same(tmp_path, name):
    write, options = MODELS[name]
    folder = write(tmp_path / "folder")
    first = started(folder, **options)
    assert not first.cache.is_kept and first.cache.mapped_bytes == 0
    second = load_on("native", folder, **options)
    assert second.cache.is_kept
    assert second.report.bytes_read < first.report.bytes_read / 4  # norms, and what isn't packed
    assert (second.report.leftovers, second.report.kinds) == (first.report.leftovers, first.report.kinds)
    path = str(second.cache.path)
    maps = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if path in line]
    spans = [(int(start, 16), int(end, 16)) for start, end in maps]
    for before, after in zip(packed_weights(first), packed_weights(second), strict=True):
        assert (after.kind, after.group_size, after.has_zeros) == (before.kind, before.group_size, before.has_zeros)
        assert numpy.array_equal(after.data, before.data)
        assert any(start <= after.address < end for start, end in spans)
    if "ranks" not in options:  # it would wait for the other one
        assert torch.equal(logits_of(second), logits_of(first))


@for_each("name, changed", [
    ("blocks of a GGUF file", "../model.gguf"),
    ("cut for ranks", "rank-0-of-2/model.safetensors"),
    ("cut for ranks", "config.json"),
])  # fmt: skip
def test_weights_are_packed_anew_where_a_file_was_replaced(tmp_path, name, changed):
    write, options = MODELS[name]
    folder = write(tmp_path / "folder")
    first = started(folder, **options)
    shutil.copyfile(folder / changed, tmp_path / "copy")
    (tmp_path / "copy").replace(folder / changed)
    second = started(folder, **options)
    assert second.cache.path != first.cache.path
    assert second.report.bytes_read == first.report.bytes_read
