"""Products of rows and weights that are both 8-bit floats, by torch's scaled products (cuBLAS).

They are made for one architecture or two, and each form of scales is used only if it agrees with the formula in a small
product on the GPU in use. Rows become 8-bit floats by torch's operations, several launches a product.
"""

import logging
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ...reference.products import linear_float8 as formula
from ...torch.packed.gpu_float8 import BLOCK, Float8Weight, float8_rows
from ..launch.switches import FLOAT8_PRODUCTS

_LOG = logging.getLogger(__name__)
_TOGETHER = 4  # rows, and blocks of inputs, of which scales by block are a multiple
_TOLERANCE = 1e-2


@formula.implement("triton")
def linear_float8(x: Tensor, weight: Float8Weight, bias: Tensor | None) -> Tensor:
    kinds, num_rows = F.ScalingType, len(x)
    bias = None if bias is None else bias.to(x.dtype)
    if not weight.is_blocked:
        rows, scales = float8_rows(x, weight.group)
        given = (rows, weight.values.t(), scales, kinds.RowWise, weight.scales.t(), kinds.RowWise)
        return F.scaled_mm(*given, bias=bias, output_dtype=x.dtype)
    rows, scales = float8_rows(F.pad(x, (0, 0, 0, -num_rows % _TOGETHER)), BLOCK)
    of_blocks = F.pad(weight.scales, (0, -weight.scales.shape[1] % _TOGETHER)).t()
    scales = scales.t().contiguous().t()  # those of a group lie together
    given = (rows, weight.values.t(), scales, kinds.BlockWise1x128, of_blocks, kinds.BlockWise128x128)
    product = F.scaled_mm(*given, output_dtype=x.dtype)[:num_rows]
    return product if bias is None else product + bias


def serves(weight: Float8Weight, dtype: torch.dtype) -> bool:
    """Whether rows in this format meet the weight."""
    return FLOAT8_PRODUCTS.is_on and is_right(weight.values.device, dtype, weight.is_blocked)


@cache
def is_right(device: torch.device, dtype: torch.dtype, is_blocked: bool) -> bool:
    generator = torch.Generator().manual_seed(0)
    x, numbers, scales = (torch.randn(*shape, generator=generator) for shape in ((5, 256), (256, 256), (2, 2)))
    scales = scales.abs() if is_blocked else torch.rand(256, 1, generator=generator)
    weight = Float8Weight(numbers.to(device, torch.float8_e4m3fn), scales.to(device))
    x, bias = x.to(device, dtype), torch.ones(256, dtype=dtype, device=device)
    try:
        found, expected = linear_float8(x, weight, bias).float(), formula.reference(x, weight, bias).float()
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        _LOG.warning("8-bit floats become integers: torch has no such scaled product here: %s", error)
        return False
    is_close = bool((found - expected).norm() <= _TOLERANCE * expected.norm())
    if not is_close:
        _LOG.warning("8-bit floats become integers: torch's scaled product differs from the formula here")
    return is_close
