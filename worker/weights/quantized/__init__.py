"""Matrices that a checkpoint stores as integers or 8-bit floats, read from the layouts of the tools that made them.

A layout is a row here and a reader in one of the other files. The tensors show which modules are quantized: a head or
projection that was left out is a plain float matrix.
"""

from collections.abc import Callable
from typing import NamedTuple

from ....kernels.stored.float8 import Float8Part
from ....kernels.stored.quantized import QuantizedPart
from ...description.quantization import Layout, Quantization
from .compressed_tensors import is_compressed, read_compressed
from .float8 import is_float8, read_float8
from .module import Module, Share
from .words import read_awq, read_gptq, read_gptq_v2

__all__ = ["COMPANIONS", "Module", "Share", "is_in_groups", "is_quantized", "read_part"]


# Tensors that may accompany or replace a module's weight.
COMPANIONS = (
    *("qweight", "qzeros", "scales", "g_idx"),
    *("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"),
    *("weight_scale_inv", "activation_scale", "input_scale_ub"),
    *("input_scale", "input_zero_point", "output_scale", "output_zero_point"),
)


class _Reading(NamedTuple):
    applies: Callable[[Module], bool]
    read: Callable[[Module, Share, Quantization], QuantizedPart]


def _has_qweight(module: Module) -> bool:
    return module.has("qweight")


_LAYOUTS: dict[Layout, _Reading] = {
    "gptq": _Reading(_has_qweight, read_gptq),
    "gptq_v2": _Reading(_has_qweight, read_gptq_v2),
    "awq": _Reading(_has_qweight, read_awq),
    "compressed-tensors": _Reading(is_compressed, read_compressed),
}


def is_quantized(module: Module, quantization: Quantization | None) -> bool:
    """Whether a module is quantized: tensors reveal 8-bit floats; config.json gives the layout of integers."""
    layout = None if quantization is None else _LAYOUTS.get(quantization.layout)
    return is_float8(module) or (layout is not None and layout.applies(module))


def is_in_groups(module: Module) -> bool:
    """Whether the names suggest integers whose inputs share scales in groups."""
    return not module.has("weight") or module.has("weight_scale")


def read_part(module: Module, share: Share, quantization: Quantization | None) -> QuantizedPart | Float8Part:
    """Read this rank's share of a quantized matrix."""
    if quantization is None or is_float8(module):
        return read_float8(module, share, quantization)
    return _LAYOUTS[quantization.layout].read(module, share, quantization)
