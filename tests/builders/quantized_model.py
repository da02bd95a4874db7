"""A tiny checkpoint as GPTQ, AWQ, compressed-tensors and tools of 8-bit floats write it, and its twin in floats with
the same values.

The packers are written from the formats' definitions, independently of the reader that they test. The head, the
embedding and routers stay floats.
"""

import json
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from builders.float8_forms import Float8Form, float8_tensors
from builders.tiny_configs import change_config
from builders.tiny_model import PROJECTION, tiny_model
from safetensors.torch import load_file, save_file
from torch import Tensor

MATRICES = {"self_attn.q_proj": (128, 64), "self_attn.v_proj": (64, 64), "mlp.down_proj": (64, 112)}  # of each layer
AWQ_OUTPUTS = (0, 2, 4, 6, 1, 3, 5, 7)  # from a word's lowest bits to its highest
Tensors = dict[str, numpy.ndarray]


@dataclass(frozen=True)
class Form:
    """One way of quantizing, and of writing it down."""

    layout: str  # gptq, gptq_v2, awq, pack-quantized, int-quantized
    bits: int = 4
    group_size: int = 32  # 0: a whole row
    is_symmetric: bool = True
    is_ordered: bool = False  # groups in the order of activations

    def __str__(self) -> str:
        words = [self.layout, str(self.bits), f"group{self.group_size}"]
        words += ["zeros"] * (not self.is_symmetric) + ["ordered"] * self.is_ordered
        return "-".join(words)


@dataclass(frozen=True)
class Integers:
    """A quantized matrix before it is written."""

    values: numpy.ndarray  # unsigned, [out, in]
    scales: numpy.ndarray  # float16 [out, groups]
    zeros: numpy.ndarray  # unsigned, [out, groups]
    group_of: numpy.ndarray  # [in]

    @property
    def floats(self) -> numpy.ndarray:
        centred = self.values - self.zeros[:, self.group_of].astype(numpy.float32)
        return (centred * self.scales[:, self.group_of].astype(numpy.float32)).astype(numpy.float32)


FORMS = [
    Form("gptq"), Form("gptq", is_symmetric=False), Form("gptq", is_ordered=True),
    Form("gptq", is_symmetric=False, is_ordered=True, group_size=16), Form("gptq", group_size=0), Form("gptq", bits=8),
    Form("gptq", bits=8, is_symmetric=False, group_size=0), Form("gptq_v2", is_symmetric=False),
    Form("awq", is_symmetric=False), Form("awq", group_size=16), Form("awq", group_size=0), Form("pack-quantized"),
    Form("pack-quantized", is_symmetric=False), Form("pack-quantized", is_ordered=True),
    Form("pack-quantized", bits=8, group_size=0), Form("int-quantized", bits=8, group_size=0),
    Form("int-quantized", bits=8, group_size=0, is_symmetric=False), Form("int-quantized", bits=8),
]  # fmt: skip


def quantized_model(folder: Path, form: Form, family: str = "qwen3", **options: Any) -> tuple[Path, Path]:
    """The quantized checkpoint, and its twin in float32. Query projections are [128, 64], keys and values [64, 64]."""
    if family == "qwen3":
        options = {"head_dim": 32} | options
    return mixed_model(folder, lambda module: form, quantization_config(form), family, **options)


def float8_model(folder: Path, form: Float8Form, family: str = "qwen3", **options: Any) -> tuple[Path, Path]:
    """The same in 8-bit floats."""
    twin = tiny_model(folder / "twin", family, **{"head_dim": 32} | options)
    return quantized_copy(twin, folder / "model", lambda module: form, form.config, form.own_file)


def mixed_model(
    folder: Path,
    form_of: Callable[[str], Form | Float8Form | None],
    config: dict[str, Any],
    family: str,
    **options: Any,
) -> tuple[Path, Path]:
    """The same where each projection has a form of its own, or None."""
    return quantized_copy(tiny_model(folder / "twin", family, **options), folder / "model", form_of, config)


def quantized_copy(
    twin: Path, quantized: Path, form_of: Callable[[str], Form | Float8Form | None], config: dict[str, Any],
    own_file: str = "",
) -> tuple[Path, Path]:  # fmt: skip
    """The same of the model in the folder `twin`, which gets the values that the copy means. `own_file` is where the
    config lies, if not among the others."""
    shutil.copytree(twin, quantized)
    written: dict[str, torch.Tensor] = {}
    floats: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(twin / "model.safetensors").items():
        written[name] = floats[name] = tensor
        module = name.removesuffix(".weight")
        if PROJECTION.search(name) and (form := form_of(module)):
            del written[name]
            made, values = _written(tensor.float().numpy(), form)
            floats[name] = torch.from_numpy(values)
            written |= {f"{module}.{part}": each for part, each in made.items()}
    save_file(floats, twin / "model.safetensors", {"format": "pt"})
    save_file(written, quantized / "model.safetensors", {"format": "pt"})
    if own_file:
        (quantized / own_file).write_text(json.dumps(config))
    else:
        change_config(quantized, quantization_config=config)
    return quantized, twin


def _written(weight: numpy.ndarray, form: Form | Float8Form) -> tuple[dict[str, torch.Tensor], numpy.ndarray]:
    """What stands in the file for one matrix, and the float32 values that it means."""
    if isinstance(form, Float8Form):
        return float8_tensors(weight, form)
    integers = _quantized(weight, form)
    made = _WRITERS[form.layout](integers, form)
    return {name: torch.from_numpy(numpy.ascontiguousarray(each)) for name, each in made.items()}, integers.floats


def _quantized(weight: numpy.ndarray, form: Form) -> Integers:
    inputs = weight.shape[1]
    size, most = form.group_size or inputs, 2**form.bits - 1
    group_of = numpy.arange(inputs) // size
    if form.is_ordered:
        # By the inputs' weight, so that projections of one input have one order, as GPTQ's have.
        group_of = group_of[numpy.random.default_rng(inputs).permutation(inputs)]
    groups = [weight[:, group_of == group] for group in range(group_of.max() + 1)]
    if form.is_symmetric:
        scales = [numpy.abs(group).max(1) / (most // 2) for group in groups]
        zeros = [numpy.full(len(weight), 2 ** (form.bits - 1)) for _ in groups]
    else:
        lows, highs = ([edge(group, 1) for group in groups] for edge in (numpy.min, numpy.max))
        scales = [(high - low) / most for low, high in zip(lows, highs)]
        zeros = [numpy.clip(numpy.round(-low / scale), 0, most) for low, scale in zip(lows, scales)]
    rounded = numpy.stack(scales, 1).astype(numpy.float16)
    zero = numpy.stack(zeros, 1).astype(numpy.int64)
    values = numpy.round(weight / rounded[:, group_of].astype(numpy.float32)) + zero[:, group_of]
    return Integers(numpy.clip(values, 0, most).astype(numpy.int64), rounded, zero, group_of)


def _packed(values: numpy.ndarray, bits: int, places: tuple[int, ...] | None = None) -> numpy.ndarray:
    """int32 [rows, columns × bits / 32, rounded up]; place i of a word holds its column places[i]."""
    per_word = 32 // bits
    rows, columns = values.shape
    padded = numpy.zeros((rows, -(-columns // per_word), per_word), numpy.uint32)
    padded.reshape(rows, -1)[:, :columns] = values & (2**bits - 1)
    shifted = padded[:, :, list(places or range(per_word))] << (bits * numpy.arange(per_word, dtype=numpy.uint32))
    return numpy.bitwise_or.reduce(shifted, -1).view(numpy.int32)


def _gptq(integers: Integers, form: Form) -> Tensors:
    less = 1 if form.layout == "gptq" else 0
    return {
        "qweight": _packed(integers.values, form.bits).T,
        "qzeros": _packed(integers.zeros.T - less, form.bits),
        "scales": integers.scales.T,
        "g_idx": integers.group_of.astype(numpy.int32),
    }


def _awq(integers: Integers, form: Form) -> Tensors:
    values, zeros = (_packed(each.T, 4, AWQ_OUTPUTS) for each in (integers.values, integers.zeros))
    return {"qweight": values, "qzeros": zeros, "scales": integers.scales.T}


def _pack_quantized(integers: Integers, form: Form) -> Tensors:
    written = {
        "weight_packed": _packed(integers.values, form.bits),
        "weight_scale": integers.scales,
        "weight_shape": numpy.array(integers.values.shape, numpy.int64),
    }
    if not form.is_symmetric:
        written["weight_zero_point"] = _packed(integers.zeros.T, form.bits).T
    if form.is_ordered:
        written["weight_g_idx"] = integers.group_of.astype(numpy.int32)
    return written


def _int_quantized(integers: Integers, form: Form) -> Tensors:
    middle = 2 ** (form.bits - 1)
    written = {"weight": (integers.values - middle).astype(numpy.int8), "weight_scale": integers.scales}
    if not form.is_symmetric:
        written["weight_zero_point"] = (integers.zeros - middle).astype(numpy.int8)
    return written


_WRITERS = {
    "gptq": _gptq, "gptq_v2": _gptq, "awq": _awq, "pack-quantized": _pack_quantized, "int-quantized": _int_quantized,
}  # fmt: skip


def quantization_config(form: Form) -> dict[str, Any]:
    size = form.group_size or -1
    if form.layout.startswith("gptq"):
        return {
            "quant_method": "gptq", "bits": form.bits, "group_size": size, "desc_act": form.is_ordered,
            "sym": form.is_symmetric, "checkpoint_format": form.layout,
        }  # fmt: skip
    if form.layout == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": size, "zero_point": True, "version": "gemm"}
    weights = {
        "num_bits": form.bits, "type": "int", "symmetric": form.is_symmetric, "dynamic": False,
        "strategy": "group" if form.group_size else "channel", "group_size": form.group_size or None,
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": form.layout, "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}},
        "quantization_status": "compressed",
    }  # fmt: skip


_BLOCK = 32


def mxfp4_model(folder: Path, **given: Any) -> Path:
    """`given` is what `tiny_model` takes; hidden and intermediate size must be multiples of 32."""
    tiny_model(folder, "gpt_oss", **{"dtype": "bfloat16", **given})
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        codes, exponents = random_blocks((experts, outputs, inputs // _BLOCK), seed=zlib.crc32(name.encode()))
        tensors |= {f"{name}_blocks": codes, f"{name}_scales": exponents}
    save_file(tensors, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def random_blocks(shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor]:
    """All codes, and exponents of a few sizes: uint8 [*shape, 16] and [*shape]."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (*shape, _BLOCK // 2), dtype=torch.uint8, generator=generator)
    return codes, torch.randint(121, 126, shape, dtype=torch.uint8, generator=generator)
