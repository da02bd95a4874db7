"""Weights in blocks of ggml's types as the GPU's products read them: taken apart into planes, none of them rounded.

The codes of 32 neighbouring inputs are a run, and four runs a span, of which a product's tile has all at once:

  values         of 4 to 6 bits: two times 32 bytes, of which byte j has input j of a run in its lower half, and of the
                 next run in its upper half; of 8 bits: the runs as they are
  plane          the bits above the halves. Of 5 bits: byte j of two spans has input j of run r as its bit r; of 6 bits:
                 byte j of a span has input j of run r as its bits 2r and 2r + 1
  scales, mins   8 bits for each group
  d, dmin        16 bits for each block: float16, of MXFP4 bfloat16, whose exponents go as far as its own

Scales, mins and floats of a span are one word, so that a tile reads one for each output; a block of 256 inputs has one
float for two spans. What pads a line are zeros.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from ....records import dataclass
from ...arrays import BFLOAT16, FLOAT16, Array, DType
from ...operands import Kind
from ...stored.block_kinds import CODES, KINDS, BlockCodes
from ...stored.ggml import GgmlPart
from ...stored.parts import WeightPart
from ..arrays import tensor_of, torch_dtype
from .gpu_weights import GpuWeight

RUN, SPAN = 32, 128  # inputs
LOOKED_UP_ZERO = 128  # of bytes that stand for looked up numbers
_NUMBERS_AT_ONCE = 1 << 18  # that are taken apart together, so that they stay in a processor's cache


class Planes(NamedTuple):
    """What belongs to the values of a matrix, a line for each output; what a kind doesn't have is None."""

    plane: Tensor | None  # uint8 [out, bytes]
    d: Tensor  # int64 [out, spans], or float16 [out, blocks of 256]
    dmin: Tensor | None  # the same
    scales: Tensor | None  # int32 or int64 [out, spans], for 4 or 8 groups each
    mins: Tensor | None  # the same


@dataclass(frozen=True, eq=False, kw_only=True)
class GpuBlocks(GpuWeight):
    """A matrix whose numbers are those of a GGUF file's blocks; its group size is that of its scales."""

    planes: Planes
    table: Tensor | None = None  # int32 [4]: bytes of what 16 codes stand for, where they are looked up

    @property
    def codes(self) -> BlockCodes:
        return CODES[self.kind]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(each.nbytes for each in self.planes if each is not None)


def kind_of(part: WeightPart) -> Kind | None:
    """The kind that it is packed in as it is; None where it becomes floats."""
    return KINDS.get(part.type) if isinstance(part, GgmlPart) else None


def pack_blocks(parts: Sequence[GgmlPart], device: torch.device) -> GpuBlocks:
    """The rows of all parts, one below the other; all are of one kind. Some rows are taken apart after another."""
    kind, in_features = KINDS[parts[0].type], parts[0].shape[1]
    codes, out_features = CODES[kind], sum(part.shape[0] for part in parts)
    found: tuple[Tensor | None, ...] = ()
    first, num_rows = 0, max(1, _NUMBERS_AT_ONCE // in_features)
    for part in parts:
        for start in range(0, part.shape[0], num_rows):
            own = _planes(part.rows(start, start + num_rows), codes)
            found = found or tuple(_room(each, out_features, device) for each in own)
            for room, rows in zip(found, own, strict=True):
                if room is not None and rows is not None:
                    room[first : first + len(rows)] = tensor_of(rows)
            first += min(num_rows, part.shape[0] - start)
    values, *planes = found
    return GpuBlocks(
        kind=kind,
        out_features=out_features,
        in_features=in_features,
        group_size=codes.group,
        values=values,  # type: ignore[arg-type]
        planes=Planes(*planes),  # type: ignore[arg-type]
        table=tensor_of(_table(codes), device) if codes.values else None,
    )


def _room(rows: Array | None, count: int, device: torch.device) -> Tensor | None:
    return None if rows is None else torch.empty(count, *rows.shape[1:], dtype=torch_dtype(rows.dtype), device=device)


def _planes(part: GgmlPart, codes: BlockCodes) -> tuple[Array | None, ...]:
    """Values, and what belongs to them."""
    blocks = part.blocks()
    runs = _padded(codes.of(blocks.values).reshape(len(part.octets), -1), SPAN)
    runs = runs.reshape(len(runs), -1, RUN)  # [out, runs, RUN]
    values = runs if codes.bits == 8 else runs[:, ::2] & 15 | runs[:, 1::2] << 4
    scales, mins = blocks.scales, blocks.mins
    return (
        values.reshape(len(runs), -1),
        _plane(runs >> 4, codes.bits - 4) if codes.bits in (5, 6) else None,
        _floats(blocks.d / codes.unit, codes),
        _floats(blocks.dmin, codes) if blocks.dmin is not None else None,
        None if codes.block == codes.group else _words(codes.of_groups(scales, blocks.values), codes),
        None if mins is None else _words(codes.of_groups(mins, blocks.values), codes),
    )


def _padded(numbers: Array, multiple: int) -> Array:
    missing = -numbers.shape[1] % multiple
    return numpy.pad(numbers, ((0, 0), (0, missing))) if missing else numbers


def _plane(high: Array, width: int) -> Array:
    """Pack as many runs together as fit into one byte for each input."""
    together = 8 // width
    runs = _padded(high.reshape(len(high), -1), together * RUN).reshape(len(high), -1, together, RUN)
    shifts = numpy.arange(0, 8, width, dtype=numpy.uint8)[:, None]
    bytes: Array = numpy.bitwise_or.reduce(runs << shifts, 2)
    return bytes.reshape(len(high), -1)


def _floats(d: Array, codes: BlockCodes) -> Array:
    """[out, blocks, 1] in 16 bits; of blocks of 32 four together."""
    with numpy.errstate(over="ignore"):
        floats = d.reshape(len(d), -1).astype(float_type(codes))
    return floats if codes.block > RUN else _padded(floats, SPAN // RUN).view(numpy.int64)


def _words(numbers: Array, codes: BlockCodes) -> Array:
    """[out, spans] of int8 [out, blocks, groups]."""
    return numbers.reshape(len(numbers), -1).view(numpy.int32 if codes.group == RUN else numpy.int64)


def float_type(codes: BlockCodes) -> DType:
    """The number format of d and dmin."""
    return BFLOAT16 if codes is CODES["mxfp4"] else FLOAT16


def _table(codes: BlockCodes) -> Array:
    values = numpy.array([*codes.values, *[0] * (16 - len(codes.values))])
    return (values + LOOKED_UP_ZERO).astype(numpy.uint8).view(numpy.int32)


def unpacked_blocks(weight: GpuBlocks) -> Tensor:
    """float32 [out, in]: the numbers of the file."""
    codes, planes, inputs = weight.codes, weight.planes, weight.in_features
    runs = weight.values.unflatten(1, (-1, RUN))
    if codes.bits < 8:
        runs = torch.stack((runs & 15, runs >> 4), 2).flatten(1, 2)
    if planes.plane is not None:
        width = codes.bits - 4
        bytes = planes.plane.unflatten(1, (-1, RUN))
        high = torch.stack([bytes >> width * run & (1 << width) - 1 for run in range(8 // width)], 2).flatten(1, 2)
        runs = runs | high[:, : runs.shape[1]] << 4
    found = runs.flatten(1)[:, :inputs].int()
    if weight.table is None:
        values = found - codes.zero
    else:
        values = weight.table.view(torch.uint8)[found.long()].int() - LOOKED_UP_ZERO
    scales = _of_inputs(planes.d.view(torch_dtype(float_type(codes))), codes.block, inputs) * codes.unit
    if planes.scales is not None:
        scales = scales * _of_inputs(planes.scales.view(torch.int8), codes.group, inputs)
    if planes.dmin is None:
        return values * scales
    mins = _of_inputs(planes.dmin.view(torch_dtype(float_type(codes))), codes.block, inputs)
    if planes.mins is not None:
        mins = mins * _of_inputs(planes.mins.view(torch.int8), codes.group, inputs)
    return values * scales - mins


def _of_inputs(numbers: Tensor, size: int, inputs: int) -> Tensor:
    """float32 [out, in] of one for so many inputs."""
    return numbers.float().repeat_interleave(size, 1)[:, :inputs]
