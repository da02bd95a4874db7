"""Matrices in 8-bit floats as their tools write them, and in float32 with the same values.

Codes are found from the formats' definitions, among the values of all 256, independently of the reader that they test.
"""

from dataclasses import dataclass
from typing import Any

import numpy
import torch

MODELOPT_FILE = "hf_quant_config.json"


def _code_values(exponent_bits: int, mantissa_bits: int) -> numpy.ndarray:
    """Of the codes 0 to 127; those that are no finite numbers are NaN."""
    bias = 2 ** (exponent_bits - 1) - 1
    codes = numpy.arange(128)
    exponents, mantissas = codes >> mantissa_bits, (codes & (2**mantissa_bits - 1)) / 2**mantissa_bits
    normal = numpy.exp2(exponents - bias) * (1 + mantissas)
    values = numpy.where(exponents == 0, 2.0 ** (1 - bias) * mantissas, normal)
    # e4m3fn has one NaN and no infinity; e5m2 is as IEEE 754 would have it.
    first_lost = 127 if exponent_bits == 4 else 124
    return numpy.where(codes < first_lost, values, numpy.nan).astype(numpy.float32)


CODE_VALUES = {torch.float8_e4m3fn: _code_values(4, 3), torch.float8_e5m2: _code_values(5, 2)}


@dataclass(frozen=True, eq=False)
class Float8Form:
    """One way of quantizing to 8-bit floats, and of writing it down."""

    name: str
    block: tuple[int, int]  # rows and columns that share a scale; 0: all of them
    config: dict[str, Any]  # quantization_config
    scale_name: str = "weight_scale"
    scale_dtype: torch.dtype = torch.float32
    scale_shape: str = "grid"  # or: scalar, one, row, four
    dtype: torch.dtype = torch.float8_e4m3fn
    beside: tuple[str, ...] = ()  # scales of activations
    has_powers: bool = False  # scales are powers of two
    own_file: str = ""  # where the config lies in a file of its own

    def __str__(self) -> str:
        return self.name


def _compressed(format: str = "float-quantized", **weights: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False} | weights
    rows = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": True, "strategy": "token"}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": rows}
    return {
        "quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"],
        "config_groups": {"group_0": group}, "quantization_status": "compressed",
    }  # fmt: skip


def _blocks(block: tuple[int, int]) -> dict[str, Any]:
    return {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": list(block),
        "modules_to_not_convert": ["lm_head"],
    }  # fmt: skip


_STATIC = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}
_MODELOPT = {"quant_algo": "FP8", "exclude_modules": ["lm_head"], "kv_cache_quant_algo": "FP8"}

FLOAT8_FORMS = [
    Float8Form("compressed-tensor", (0, 0), _compressed(strategy="tensor"), scale_shape="one", beside=("input_scale",)),
    Float8Form("compressed-channel", (1, 0), _compressed(strategy="channel"), scale_dtype=torch.bfloat16),
    Float8Form(
        "compressed-block", (32, 48), _compressed(strategy="block", block_structure=[32, 48]),
        scale_dtype=torch.bfloat16,
    ),
    Float8Form("compressed-group", (1, 16), _compressed("naive-quantized", strategy="group", group_size=16)),
    Float8Form(
        "compressed-mxfp8", (1, 16), _compressed("mxfp8-quantized", strategy="group", group_size=16),
        scale_dtype=torch.uint8, has_powers=True,
    ),
    Float8Form("deepseek", (32, 48), _blocks((32, 48)), "weight_scale_inv"),
    Float8Form("deepseek-128", (128, 128), _blocks((128, 128)), "weight_scale_inv"),
    Float8Form(
        "deepseek-ue8m0", (32, 48), _blocks((32, 48)) | {"scale_fmt": "ue8m0"}, "weight_scale_inv",
        scale_dtype=torch.float8_e8m0fnu, has_powers=True,
    ),
    Float8Form("static", (0, 0), _STATIC, scale_shape="scalar", beside=("input_scale",)),
    Float8Form(
        "static-inverse", (0, 0), _STATIC | {"weight_block_size": None}, "weight_scale_inv", scale_shape="scalar",
        beside=("activation_scale",),
    ),
    Float8Form("static-e5m2", (0, 0), _STATIC, scale_shape="scalar", dtype=torch.float8_e5m2),
    Float8Form(
        "fbgemm", (1, 0), {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, beside=("input_scale_ub",)
    ),
    Float8Form(
        "modelopt", (0, 0), {"quant_method": "modelopt"} | _MODELOPT, scale_shape="scalar", beside=("input_scale",)
    ),
    Float8Form(
        "modelopt-own-file", (0, 0), {"producer": {"name": "modelopt"}, "quantization": _MODELOPT},
        scale_shape="scalar", beside=("input_scale",), own_file=MODELOPT_FILE,
    ),
    Float8Form(
        "modelopt-rows", (1, 0), {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
        scale_shape="row",
    ),
    Float8Form(
        "modelopt-blocks", (32, 16), {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, scale_shape="four"
    ),
]  # fmt: skip


def float8_tensors(weight: numpy.ndarray, form: Float8Form) -> tuple[dict[str, torch.Tensor], numpy.ndarray]:
    """What stands in the file for one matrix, and the float32 values that it means."""
    table = CODE_VALUES[form.dtype]
    table = table[numpy.isfinite(table)]
    starts = [numpy.arange(0, whole, size or whole) for size, whole in zip(form.block, weight.shape)]
    sizes = [numpy.diff(own, append=whole) for own, whole in zip(starts, weight.shape)]
    grid = numpy.maximum.reduceat(numpy.maximum.reduceat(numpy.abs(weight), starts[0], 0), starts[1], 1) / table[-1]
    if form.has_powers:
        grid = numpy.exp2(numpy.ceil(numpy.log2(grid)))
    scales, factors = _stored_scales(grid.astype(numpy.float32), form)
    factors = factors.repeat(sizes[0], 0).repeat(sizes[1], 1)  # [out, in]
    nearest = numpy.searchsorted((table[1:] + table[:-1]) / 2, numpy.abs(weight) / factors)
    codes = (nearest + 128 * (weight < 0)).astype(numpy.uint8)
    values = numpy.where(weight < 0, -1, 1).astype(numpy.float32) * table[nearest] * factors
    made = {"weight": torch.from_numpy(codes).view(form.dtype), form.scale_name: scales}
    return made | {name: torch.tensor(0.03) for name in form.beside}, values


def _stored_scales(grid: numpy.ndarray, form: Float8Form) -> tuple[torch.Tensor, numpy.ndarray]:
    """As they are written, and the float32 factors that they mean."""
    if form.scale_dtype == torch.uint8:
        return torch.from_numpy((numpy.log2(grid) + 127).astype(numpy.uint8)), grid
    stored = torch.from_numpy(grid).to(form.scale_dtype)
    shapes = {
        "grid": grid.shape, "scalar": (), "one": (1,), "row": grid.shape[:1], "four": (len(grid), 1, grid.shape[1], 1),
    }  # fmt: skip
    return stored.reshape(shapes[form.scale_shape]), stored.float().numpy()
