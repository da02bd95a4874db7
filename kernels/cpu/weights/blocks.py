"""Packs matrices whose parts are blocks of a GGUF file, in the order of source/block_types.hpp.

Bytes are reordered and never rounded: the numbers are those of the file. Query, key and value may be of types unlike
one another, and yet are one product: `JoinedWeight` holds them side by side, each packed in its own kind.
"""

from collections.abc import Sequence
from ctypes import Structure, addressof, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...ggml_part import GgmlPart
from ...operands import BlockKind
from ..layer import Embedding
from ..library import load, struct_of
from .huge_pages import zeroed
from .packed import BLOCK_KINDS, NativeWeight, Weight, empty, packed_bytes

_LINE = 64  # bytes


class PackBlocks(Structure):
    """Arguments of penstock_pack_blocks."""

    _fields_ = [
        ("blocks", c_void_p),  # of the file, uint8 [out, bytes of a row]
        ("row_stride", c_int64),
        ("num_rows", c_int64),
        ("first_row", c_int64),
        ("weight", Weight),
    ]


def kind_of(part: GgmlPart) -> BlockKind | None:
    """The kind that it is packed in; None where there is no kernel for its type."""
    kind = part.type.lower()
    return kind if kind in BLOCK_KINDS else None  # type: ignore[return-value]


def pack_blocks(parts: Sequence[GgmlPart]) -> NativeWeight:
    """Pack the rows of all parts, one below the other; all are of one type that has a kernel."""
    kind = kind_of(parts[0])
    if kind is None:
        raise ValueError(f"No kernel multiplies blocks of {parts[0].type}.")
    weight = empty(kind, sum(part.shape[0] for part in parts), parts[0].shape[1])
    library, structure, first_row = load(), weight.structure(), 0
    for part in parts:
        octets = part.octets if part.octets.stride(1) == 1 else part.octets.contiguous()
        arguments = struct_of(PackBlocks, octets, octets.stride(0), len(octets), first_row, structure)
        library.call("penstock_pack_blocks", arguments)
        first_row += len(octets)
    return weight


def unpacked_blocks(weight: NativeWeight) -> Tensor:
    """[out, in]: the numbers of the file."""
    found, ids = torch.empty(weight.out_features, weight.in_features), torch.arange(weight.out_features)
    count, place = c_int32(len(found)), c_void_p(ids.data_ptr())
    arguments = Embedding.of(addressof(count), addressof(place), 0, weight, found.data_ptr())
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
            own.data.copy_(given.data)
        return joined

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
