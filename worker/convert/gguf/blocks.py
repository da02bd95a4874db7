"""Writes rows of floats as ggml's blocks: an array of bytes per row, which other engines read.

    Q8_0   32 weights: float16 scale, int8 values
    Q4_0   32 weights: float16 scale, 4-bit values less 8, those of the second half in the high bits
    Q5_0   the same with a fifth bit
    Q4_K, Q5_K, Q6_K: `k_blocks.py`

The values are those of ggml's reference. Its formulas are float32, and so are these.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .k_blocks import bytes_of, divided, nibbles, q4_k, q5_k, q6_k

_BLOCK = 32


def quantized_rows(rows: Tensor, type_name: str) -> Tensor:
    """[rows, inputs] as uint8 [rows, bytes of a row]."""
    if type_name in _FLOATS:
        return rows.to(_FLOATS[type_name]).contiguous().view(torch.uint8).view(len(rows), -1)
    return _QUANTIZERS[type_name](rows.float()).view(len(rows), -1)


def q8_0(rows: Tensor) -> Tensor:
    blocks = rows.reshape(-1, _BLOCK)
    scales = blocks.abs().amax(1, keepdim=True) / 127
    values = _away_from_zero(blocks * divided(1.0, scales)).to(torch.int8)
    return torch.cat([bytes_of(scales.half()), values.view(torch.uint8)], 1)


def q4_0(rows: Tensor) -> Tensor:
    blocks = rows.reshape(-1, _BLOCK)
    scales, values = _scaled(blocks, 8)
    return torch.cat([scales, nibbles(values[:, :16], values[:, 16:])], 1)


def q5_0(rows: Tensor) -> Tensor:
    blocks = rows.reshape(-1, _BLOCK)
    scales, values = _scaled(blocks, 16)
    # All fifth bits, the first weight's in the lowest bit.
    fifth = (values >> 4).view(-1, 4, 8) << torch.arange(8, dtype=torch.uint8)
    low = values & 15
    return torch.cat([scales, fifth.sum(2).to(torch.uint8), nibbles(low[:, :16], low[:, 16:])], 1)


def _scaled(blocks: Tensor, middle: int) -> tuple[Tensor, Tensor]:
    """The scale maps the largest magnitude to -middle; values are 0 to 2 × middle - 1."""
    extreme = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
    scales = extreme / -middle
    values = (blocks * divided(1.0, scales) + (middle + 0.5)).to(torch.uint8).clamp(max=2 * middle - 1)
    return bytes_of(scales.half()), values


def _away_from_zero(values: Tensor) -> Tensor:
    """Round to the nearest, halves away from 0; torch rounds them to even."""
    whole = values.trunc()
    return whole + values.sign() * ((values - whole).abs() >= 0.5)


_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_QUANTIZERS: dict[str, Callable[[Tensor], Tensor]] = {
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q5_0": q5_0,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}
