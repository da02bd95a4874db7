"""Writes the layout of compressed-tensors: the tensors of each matrix, and their description in config.json.

8 bits are written as int-quantized with a scale per row, 4 bits as pack-quantized in groups, both symmetric. Scales
keep the kernels' own format, so that nothing is rounded twice.
"""

from typing import Any

import torch
from torch import Tensor

from ...kernels.stored.quantized import QuantizedPart
from ...kernels.torch.arrays import tensor_of

DtypeAndShape = tuple[torch.dtype, tuple[int, ...]]
_VALUES_PER_WORD = 8


def planned_tensors(kind: str, shape: tuple[int, int], group_size: int) -> dict[str, DtypeAndShape]:
    """The tensors for a module whose weight had this shape."""
    rows, columns = shape
    if kind == "int8":
        return {"weight": (torch.int8, shape), "weight_scale": (torch.float32, (rows, 1))}
    return {
        "weight_packed": (torch.int32, (rows, columns // _VALUES_PER_WORD)),
        "weight_scale": (torch.float16, (rows, columns // group_size)),
        "weight_shape": (torch.int64, (2,)),
    }


def written_rows(part: QuantizedPart) -> dict[str, Tensor]:
    """Rows of those tensors, except `weight_shape`, which has none."""
    if part.bits == 8:
        return {"weight": tensor_of(part.values), "weight_scale": tensor_of(part.scales).float()}
    return {"weight_packed": packed_words(tensor_of(part.values)), "weight_scale": tensor_of(part.scales).half()}


def packed_words(values: Tensor) -> Tensor:
    """int32 [rows, columns / 8] from uint8 0..15, the first one in the lowest bits."""
    return (values[:, 0::2] | values[:, 1::2] << 4).contiguous().view(torch.int32)


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
