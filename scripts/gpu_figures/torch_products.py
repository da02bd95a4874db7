"""Products with quantized weights as torch itself has them, to be measured beside ours."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_GROUP, _INNER_TILES = 64, 8


class TorchProduct(NamedTuple):
    packed: Callable[[Tensor], Any]  # from a weight [outputs, inputs]
    rows: Callable[[Tensor], Tensor]  # as the product takes them
    multiply: Callable[[Tensor, Any], Tensor]
    least_rows: int = 1


def _int8(x: Tensor) -> Tensor:
    return (x.float() * 127 / x.float().abs().amax()).round().to(torch.int8)


def _int4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """What `_weight_int4pack_mm` takes: packed values, and a scale and a zero for each group."""
    outputs, inputs = weight.shape
    values = torch.randint(0, 16, (outputs, inputs), device=weight.device, dtype=torch.int32)
    scales = torch.full((inputs // _GROUP, outputs, 2), 0.01, dtype=torch.bfloat16, device=weight.device)
    if weight.device.type == "cpu":
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, _INNER_TILES), scales
    octets = (values[:, ::2] << 4 | values[:, 1::2]).to(torch.uint8)
    return torch.ops.aten._convert_weight_to_int4pack(octets, _INNER_TILES), scales


def _multiply_int4(x: Tensor, weight: tuple[Tensor, Tensor]) -> Tensor:
    values, scales = weight
    of_device = "_weight_int4pack_mm_for_cpu" if x.device.type == "cpu" else "_weight_int4pack_mm"
    return getattr(torch.ops.aten, of_device)(x, values, _GROUP, scales)


TORCHS = {
    "bf16": TorchProduct(lambda weight: weight, lambda x: x, F.linear),
    "int8": TorchProduct(lambda weight: _int8(weight).T, _int8, torch._int_mm, least_rows=17),
    "int4": TorchProduct(_int4, lambda x: x, _multiply_int4),
}
