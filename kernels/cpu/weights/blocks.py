"""Packs matrices whose parts are blocks of a GGUF file, in the order of source/block_types.hpp.

Bytes are reordered and never rounded: the numbers are those of the file. Types of 1 to 3 bits are stored as nibbles,
which stand for the few numbers that they have. Query, key and value may be of types unlike one another, and yet are one
product: `JoinedWeight` holds them side by side, each packed in its own kind.
"""

from collections.abc import Sequence
from ctypes import addressof, c_int32, c_void_p
from typing import Any

import numpy

from ....records import dataclass
from ...arrays import FLOAT16, FLOAT32, Array, address
from ...operands import BlockKind
from ...stored.block_kinds import CODES, KINDS_OF_TYPES, SMALLER_TYPES
from ...stored.ggml import GgmlPart
from ..layer import embedding_of
from ..library import load, struct_of
from ..structs import PackBlockParts, PackBlocks, Weight
from .huge_pages import zeroed
from .packed import NativeWeight, empty, packed_bytes

_LINE = 64  # bytes
_NUMBERS_AT_ONCE = 1 << 22  # that are taken apart together


def kind_of(part: GgmlPart) -> BlockKind | None:
    """The kind that it is packed in; None where there is no kernel for its type."""
    return KINDS_OF_TYPES.get(part.type)


def pack_blocks(parts: Sequence[GgmlPart]) -> NativeWeight:
    """Pack the rows of all parts, one below the other; all are of one kind."""
    kind = kind_of(parts[0])
    if kind is None:
        raise ValueError(f"No kernel multiplies blocks of {parts[0].type}.")
    weight = empty(kind, sum(part.shape[0] for part in parts), parts[0].shape[1])
    library, structure, first_row = load(), weight.structure(), 0
    for part in parts:
        if part.type in SMALLER_TYPES:
            _pack_smaller(part, structure, first_row)
        else:
            octets = part.octets if part.octets.strides[1] == 1 else numpy.ascontiguousarray(part.octets)
            arguments = struct_of(PackBlocks, octets, octets.strides[0], len(octets), first_row, structure)
            library.call("penstock_pack_blocks", arguments)
        first_row += part.shape[0]
    return weight


def _pack_smaller(part: GgmlPart, structure: Weight, first_row: int) -> None:
    """Some rows after another, for what they are taken apart into is larger than they are."""
    stored, num_rows = CODES[SMALLER_TYPES[part.type]], max(1, _NUMBERS_AT_ONCE // part.shape[1])
    for first in range(0, part.shape[0], num_rows):
        blocks = part.rows(first, first + num_rows).blocks()
        codes = stored.of(blocks.values)
        with numpy.errstate(over="ignore"):
            d = (blocks.d / stored.unit).astype(FLOAT16)
        dmin = None if blocks.dmin is None else blocks.dmin.astype(FLOAT16)
        scales = stored.of_groups(blocks.scales, codes)
        mins = None if blocks.mins is None else stored.of_groups(blocks.mins, codes)
        target = len(codes), first_row + first, structure
        load().call("penstock_pack_block_parts", struct_of(PackBlockParts, codes, d, dmin, scales, mins, *target))


def unpacked_blocks(weight: NativeWeight) -> Array:
    """[out, in]: the numbers of the file."""
    found, ids = numpy.empty((weight.out_features, weight.in_features), FLOAT32), numpy.arange(weight.out_features)
    count, pointer = c_int32(len(found)), c_void_p(address(ids))
    arguments = embedding_of(addressof(count), addressof(pointer), 0, weight, address(found))
    load().call("penstock_embedding", arguments)
    return found


@dataclass
class JoinedWeight(NativeWeight):
    """Weights of several kinds side by side, as one matrix."""

    layout: str  # kind, outputs and group size of each, and whether it has zeros: "q4_k 4096 0 0, q6_k 1024 0 0"

    @classmethod
    def of(cls, weights: Sequence[NativeWeight]) -> "JoinedWeight":
        layout = ", ".join(
            f"{each.kind} {each.out_features} {each.group_size} {int(each.has_zeros)}" for each in weights
        )
        data = zeroed(sum(_up(each.nbytes) for each in weights))
        joined = cls(
            "joined", sum(each.out_features for each in weights), weights[0].in_features, 0, False, data, layout
        )
        for own, given in zip(joined.parts(), weights, strict=True):
            own.data[:] = given.data
        return joined

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(part.kind for part in self.parts())

    def parts(self) -> list[NativeWeight]:
        """Each of them, in memory that is the whole's."""
        found, start = [], 0
        for words in map(str.split, self.layout.split(", ")):
            kind: Any = words[0]
            outputs, group_size, zeros = map(int, words[1:])
            nbytes = packed_bytes(kind, outputs, self.in_features, group_size, bool(zeros))
            own = self.data[start : start + nbytes]
            found.append(NativeWeight(kind, outputs, self.in_features, group_size, bool(zeros), own))
            start += _up(nbytes)
        return found


def _up(nbytes: int) -> int:
    """To the border of a line of memory."""
    return -(-nbytes // _LINE) * _LINE
