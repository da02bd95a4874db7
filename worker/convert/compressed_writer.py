"""Writes the layout of compressed-tensors: the tensors of each matrix, and their description in config.json.

8 bits are written as int-quantized with a scale per row, 4 bits as pack-quantized in groups, both symmetric. Scales
keep the kernels' own format, so that nothing is rounded twice.
"""

from typing import Any

import numpy

from ...kernels.arrays import FLOAT16, FLOAT32, Array, DType
from ...kernels.stored.quantized import QuantizedPart

DtypeAndShape = tuple[DType, tuple[int, ...]]
_INT8, _INT32, _INT64 = map(numpy.dtype, (numpy.int8, numpy.int32, numpy.int64))
_VALUES_PER_WORD = 8


def planned_tensors(kind: str, shape: tuple[int, int], group_size: int) -> dict[str, DtypeAndShape]:
    """The tensors for a module whose weight had this shape."""
    rows, columns = shape
    if kind == "int8":
        return {"weight": (_INT8, shape), "weight_scale": (FLOAT32, (rows, 1))}
    return {
        "weight_packed": (_INT32, (rows, columns // _VALUES_PER_WORD)),
        "weight_scale": (FLOAT16, (rows, columns // group_size)),
        "weight_shape": (_INT64, (2,)),
    }


def written_rows(part: QuantizedPart) -> dict[str, Array]:
    """Rows of those tensors, except `weight_shape`, which has none."""
    if part.bits == 8:
        return {"weight": part.values, "weight_scale": part.scales.astype(FLOAT32)}
    return {"weight_packed": packed_words(part.values), "weight_scale": part.scales.astype(FLOAT16)}


def packed_words(values: Array) -> Array:
    """int32 [rows, columns / 8] from uint8 0..15, the first one in the lowest bits."""
    return numpy.ascontiguousarray(values[:, 0::2] | values[:, 1::2] << 4).view(_INT32)


def quantization_config(by_kind: dict[str, list[str]], others: list[str], group_size: int) -> dict[str, Any]:
    """Make the config; `by_kind` are the modules of each kind, `others` the unchanged ones."""
    is_mixed = len(by_kind) > 1
    groups = [_group(kind, modules if is_mixed else ["Linear"], group_size) for kind, modules in by_kind.items()]
    return {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision" if is_mixed else groups[0]["format"],
        "quantization_status": "compressed",
        "ignore": others,
        "config_groups": {f"group_{number}": group for number, group in enumerate(groups)},
    }


def _group(kind: str, targets: list[str], group_size: int) -> dict[str, Any]:
    weights: dict[str, Any] = {"type": "int", "symmetric": True, "dynamic": False}
    rows: dict[str, Any] | None = None
    if kind == "int8":
        weights |= {"num_bits": 8, "strategy": "channel"}
        rows = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    else:
        weights |= {"num_bits": 4, "strategy": "group", "group_size": group_size}
    form = "int-quantized" if kind == "int8" else "pack-quantized"
    return {"targets": targets, "format": form, "weights": weights, "input_activations": rows}
