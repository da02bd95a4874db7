"""From plain numbers to the bytes of packed KV memory: the way there, as `kv_layout.plain_keys` is the way back.

Rounds as cpu/source/store_heads.cpp does, bit for bit. Codes are the stored numbers as integers, before they are
interleaved. Knows nothing of tokens or slots.
"""

import torch
from torch import Tensor

from ..kv_layout import KV_FORMATS

_FLOATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_CODES = {"fp32": torch.int32, "fp16": torch.int16, "bf16": torch.int16}


def codes_of(x: Tensor, kind: str) -> tuple[Tensor, Tensor | None]:
    """Each head of float32 [..., head_dim] as codes of the same shape, and its float16 scales [..., parts]."""
    if kind in _FLOATS:
        return x.to(_FLOATS[kind]).view(_CODES[kind]), None
    # What isn't finite must not be hidden by an integer: the scale becomes NaN.
    poison = (x * 0).sum(-1, keepdim=True)
    if kind == "int8":
        scale = _rounded_up((x.abs().amax(-1, keepdim=True) + poison) / 127)
        return _whole(x, scale, -127, 127).to(torch.uint8), scale
    minimum = -_rounded_up(-(x.amin(-1, keepdim=True) + poison))
    scale = _rounded_up((x.amax(-1, keepdim=True) + poison - minimum.float()) / 15)
    return _whole(x - minimum.float(), scale, 0, 15).to(torch.uint8), torch.cat((scale, minimum), -1)


def _whole(x: Tensor, scale: Tensor, least: int, most: int) -> Tensor:
    whole = (x * (1 / scale.float())).clamp(least, most).round().where(scale > 0, 0.0)
    return whole.to(torch.int32)


def _rounded_up(x: Tensor) -> Tensor:
    """The smallest float16 that is not below."""
    nearest = x.half()
    bits = nearest.view(torch.int16)
    above = (bits + torch.where(bits >= 0, 1, -1)).to(torch.int16).view(torch.float16)
    return torch.where(nearest.float() < x, above, nearest)


def key_codes(stored: Tensor, kind: str, block_size: int) -> Tensor:
    """[blocks, heads, block_size, head_dim] from the bytes [blocks, heads, bytes] of keys; int8's are 128 too high."""
    return _codes(stored, kind).unflatten(2, (-1, block_size)).transpose(2, 3).flatten(3)


def value_codes(stored: Tensor, kind: str, head_dim: int) -> Tensor:
    """[blocks, heads, block_size, head_dim] from the bytes [blocks, heads, bytes] of values."""
    return _codes(stored, kind).unflatten(2, (-1, head_dim)).transpose(3, 4).flatten(2, 3)


def packed_keys(codes: Tensor, kind: str) -> Tensor:
    """The bytes of keys; the way back from `key_codes`."""
    return _bytes(codes.unflatten(3, (-1, KV_FORMATS[kind].per_unit)).transpose(2, 3).flatten(2, 3), kind)


def packed_values(codes: Tensor, kind: str) -> Tensor:
    """The bytes of values; the way back from `value_codes`."""
    return _bytes(codes.unflatten(2, (-1, KV_FORMATS[kind].per_unit)).transpose(3, 4).flatten(2, 3), kind)


def _codes(stored: Tensor, kind: str) -> Tensor:
    """[blocks, heads, units, per unit]."""
    if kind == "uint4":
        quads = stored.unflatten(2, (-1, 4))
        return torch.cat((quads & 15, quads >> 4), -1)
    return stored.view(_CODES.get(kind, torch.uint8)).unflatten(2, (-1, KV_FORMATS[kind].per_unit))


def _bytes(units: Tensor, kind: str) -> Tensor:
    if kind == "uint4":
        units = units[..., :4] | units[..., 4:] << 4
    return units.contiguous().flatten(2).view(torch.uint8)
