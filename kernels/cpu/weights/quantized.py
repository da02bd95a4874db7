"""Packs matrices that may come from a quantized checkpoint into the kernels' own formats, and takes them out again.

4-bit values in groups, MXFP4, blocks of ggml, and 8-bit values with a scale per row are taken over as they are; 8 bits
in groups or with zeros become two 4-bit values each, which lose nothing. What no kernel multiplies (groups of odd
sizes, rows merged from unlike parts) becomes int8 with a scale per row, which costs less than the step from the
original to 4 bits did.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

import numpy

from ....records import dataclass
from ...arrays import FLOAT16, FLOAT32, Array, DType
from ...operands import Kind, WeightFormat
from ...stored.float8 import Float8Part
from ...stored.ggml import GgmlPart
from ...stored.mxfp4 import BLOCK, Mxfp4Part
from ...stored.parts import WeightPart
from ...stored.quantized import MIDDLE, QuantizedPart
from .blocks import JoinedWeight, kind_of, pack_blocks
from .packed import (
    BLOCK_KINDS,
    GROUP_SIZES,
    PANEL,
    NativeWeight,
    pack,
    pack_int4_from,
    pack_int8_from,
    pack_mxfp4,
    padded,
)

_LARGEST_GROUP = max(GROUP_SIZES)


@dataclass
class OrderedWeight(NativeWeight):
    """A weight whose values are not in the order of their inputs. An input may meet several values."""

    order: Array  # int32 [in_features]: which input meets value k


def pack_parts(parts: Sequence[WeightPart], kind: Kind, group_size: int) -> NativeWeight:
    """Pack the rows of all parts; `kind` and `group_size` are for those in floats, of 16 and more bits, 8, or 4."""
    # A cut through blocks gives floats, alone or together with whole blocks.
    if kind in BLOCK_KINDS or any(isinstance(part, GgmlPart) for part in parts):
        return _pack_side_by_side(parts, kind, group_size)
    blocks = [part for part in parts if isinstance(part, Mxfp4Part)]
    if kind == "mxfp4" and len(blocks) == len(parts):
        return pack_mxfp4(blocks)
    floats = [part.dequantized() if isinstance(part, Mxfp4Part) else part for part in parts]
    return _pack_others(floats, kind, group_size)  # type: ignore[arg-type]


def _pack_side_by_side(parts: Sequence[WeightPart], kind: Kind, group_size: int) -> NativeWeight:
    """Parts of a GGUF file, each in the kind of its own type, neighbours of one kind together."""
    fitting = [_fitting(part) for part in parts]
    weights = []
    for own_kind, run in groupby(fitting, lambda part: _own_kind(part, kind)):
        own: Any = list(run)
        if own_kind in BLOCK_KINDS:
            weights.append(pack_blocks(own))
        else:
            weights.append(pack_parts(own, own_kind, group_size))
    return weights[0] if len(weights) == 1 else JoinedWeight.of(weights)


def _fitting(part: WeightPart) -> WeightPart:
    """The same numbers as a part that some kernel multiplies."""
    if not isinstance(part, GgmlPart) or kind_of(part) is not None:
        return part
    return part.as_mxfp4() if part.type == "MXFP4" else part.dequantized()


def _own_kind(part: WeightPart, kind: Kind) -> Kind:
    if isinstance(part, GgmlPart):
        return kind_of(part) or kind
    if isinstance(part, Mxfp4Part):
        return "mxfp4"
    if isinstance(part, numpy.ndarray) and kind in BLOCK_KINDS:
        return WeightFormat.of(part.dtype).kind
    return kind


def _pack_others(parts: Sequence[Array | QuantizedPart | Float8Part], kind: Kind, group_size: int) -> NativeWeight:
    integers = [part for part in parts if isinstance(part, QuantizedPart)]
    if not integers:
        return pack(parts, kind, group_size)  # type: ignore[arg-type]
    if len(integers) == len(parts) and all(map(_has_int8_kernel, integers)):
        return pack_int8_from([(part.values, part.scales[:, 0]) for part in integers])
    if len(integers) == len(parts):
        found = (part if part.bits == 4 else part.as_nibbles() for part in integers)
        nibbles = [part for part in found if part is not None]
        if len(nibbles) == len(integers) and _have_int4_kernel(nibbles):
            return _packed_int4(nibbles)
    floats = [part.dequantized() if isinstance(part, QuantizedPart) else part for part in parts]
    return pack(floats, "int8")


def unpacked(weight: NativeWeight) -> QuantizedPart:
    """An integer weight in the layout of a checkpoint again."""
    return _unpacked_int8(weight) if weight.kind == "int8" else _unpacked_int4(weight)


def _unpacked_int8(weight: NativeWeight) -> QuantizedPart:
    width = padded(weight.in_features)
    values_end = -(-weight.out_features // PANEL) * PANEL * width
    # Four values of one output are neighbours, and move as one word.
    words = weight.data[:values_end].view(numpy.int32).reshape(-1, width // 4, PANEL)
    values = numpy.ascontiguousarray(words.swapaxes(1, 2)).view(numpy.uint8).reshape(-1, width)
    scales = weight.data[values_end:].view(FLOAT32)[: weight.out_features, None]
    return QuantizedPart.of(8, values[: weight.out_features, : weight.in_features], scales, None, weight.in_features)


def _unpacked_int4(weight: NativeWeight) -> QuantizedPart:
    header = 2 * PANEL * (2 if weight.has_zeros else 1)
    panels = -(-weight.out_features // PANEL)
    groups = weight.data.reshape(panels, -1, header + weight.group_size * PANEL // 2)
    words = groups[..., header:].view(numpy.int32).reshape(*groups.shape[:2], -1, PANEL)
    octets = numpy.ascontiguousarray(words.transpose(0, 3, 1, 2)).view(numpy.uint8).reshape(panels * PANEL, -1, 4)
    # Of four octets the low halves come first.
    values = numpy.stack((octets & 15, octets >> 4), -2).reshape(panels * PANEL, -1)
    num_groups = -(-weight.in_features // weight.group_size)
    rows = slice(weight.out_features)
    scales = _by_row(groups[..., : 2 * PANEL], FLOAT16)[rows, :num_groups]
    zeros = None
    if weight.has_zeros:
        zeros = _by_row(groups[..., 2 * PANEL : header], numpy.dtype(numpy.int16)).astype(numpy.uint8)[
            rows, :num_groups
        ]
    return QuantizedPart.of(4, values[rows, : weight.in_features], scales, zeros, weight.group_size)


def unpacked_mxfp4(weight: NativeWeight) -> Mxfp4Part:
    """The same of one in MXFP4."""
    panels = -(-weight.out_features // PANEL)
    pairs = weight.data.reshape(panels, -1, 2 * (1 + BLOCK // 2) * PANEL)
    exponents = pairs[..., : 2 * PANEL].reshape(panels, -1, 2, PANEL).transpose(0, 3, 1, 2).reshape(panels * PANEL, -1)
    # Of eight inputs, four lie in the low halves of four octets, the others in their high halves.
    octets = pairs[..., 2 * PANEL :].reshape(panels, pairs.shape[1], -1, PANEL, 4).transpose(0, 3, 1, 2, 4)
    eights = numpy.stack((octets & 15, octets >> 4), -2).reshape(panels * PANEL, -1)  # [out, inputs]
    codes = (eights[:, 0::2] | eights[:, 1::2] << 4).reshape(panels * PANEL, -1, BLOCK // 2)
    rows, blocks = slice(weight.out_features), slice(weight.in_features // BLOCK)
    return Mxfp4Part(codes[rows, blocks], exponents[rows, blocks])


def _by_row(octets: Array, dtype: DType) -> Array:
    """[out, groups] from one number a lane in every group of every panel."""
    numbers = octets.view(dtype).swapaxes(1, 2)
    return numbers.reshape(-1, numbers.shape[2])


def _has_int8_kernel(part: QuantizedPart) -> bool:
    return part.bits == 8 and part.zeros is None and part.order is None and part.scales.shape[1] == 1


def _have_int4_kernel(parts: list[QuantizedPart]) -> bool:
    first = parts[0]
    is_grouped = (
        first.group_size in GROUP_SIZES
        or first.group_size >= first.values.shape[1]
        or first.group_size % _LARGEST_GROUP == 0
    )
    return is_grouped and all(part.bits == 4 and part.is_grouped_like(first) for part in parts)


def _packed_int4(parts: list[QuantizedPart]) -> NativeWeight:
    in_features, group_size = parts[0].values.shape[1], parts[0].group_size
    times = 1
    if group_size < in_features and group_size > _LARGEST_GROUP:
        times, group_size = group_size // _LARGEST_GROUP, _LARGEST_GROUP
    num_groups = -(-in_features // group_size)
    has_zeros = any(part.zeros is not None for part in parts)
    packed = pack_int4_from(
        [
            (
                part.values,
                _groups(part.scales, times, num_groups),
                _zeros(part, has_zeros, times, num_groups),
            )
            for part in parts
        ],
        group_size,
    )
    if parts[0].order is None:
        return packed
    return OrderedWeight(**{field.name: getattr(packed, field.name) for field in fields(packed)}, order=parts[0].order)


def _groups(per_group: Array, times: int, num_groups: int) -> Array:
    """One column for each group of the kernel's: what stands for several is repeated."""
    return per_group.repeat(times, 1)[:, :num_groups]


def _zeros(part: QuantizedPart, has_zeros: bool, times: int, num_groups: int) -> Array | None:
    if not has_zeros:
        return None
    zeros = numpy.full(part.scales.shape, MIDDLE, numpy.uint8) if part.zeros is None else part.zeros
    return _groups(zeros, times, num_groups)
