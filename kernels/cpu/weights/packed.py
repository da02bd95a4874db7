"""Weight matrices in the order in which the CPU kernels multiply them, in all number formats.

A matrix is packed once, straight from its parts (views of mapped files, say), which need not be joined before; nothing
in full precision is kept. Everything a packed weight has lies in one piece of memory, so that it can be written to a
file and mapped again. The orders are described in source/linear.hpp.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy

from ....records import dataclass
from ...arrays import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, Array, address
from ...operands import DTYPES, Kind
from ...stored.float8 import Float8Part, code_values
from ...stored.mxfp4 import BLOCK, Mxfp4Part
from ..library import load, struct_of
from ..structs import SOURCE_TYPE, Float8Blocks, Pack, PackMxfp4, PackValues, Weight
from .huge_pages import zeroed

PANEL = 32  # kPanel
ROW_ALIGN = 64  # kRowAlign
DEFAULT_GROUP_SIZE = 64
GROUP_SIZES = (32, 64, 128)
_COLUMNS_AT_ONCE = 32  # that are copied of a transposed matrix
_FLOAT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


class BlockLayout(NamedTuple):
    """What a block of ggml's of all outputs of a panel takes (source/block_types.hpp)."""

    number: int  # as source/linear_blocks.cpp counts the types, from 1
    inputs: int  # of a block; rows that meet it have a scale for so many
    halves: int  # float16 numbers of an output
    octets: int  # scales and mins of an output
    bits: int  # of a code

    @property
    def nbytes(self) -> int:
        return PANEL * (2 * self.halves + self.octets + self.inputs * self.bits // 8)


BLOCK_KINDS: dict[Kind, BlockLayout] = {
    "q4_0": BlockLayout(1, 32, 1, 0, 4),
    "q4_1": BlockLayout(2, 32, 2, 0, 4),
    "q5_0": BlockLayout(3, 32, 1, 0, 5),
    "q5_1": BlockLayout(4, 32, 2, 0, 5),
    "q8_0": BlockLayout(5, 32, 1, 0, 8),
    "iq4_nl": BlockLayout(6, 32, 1, 0, 4),
    "q4_k": BlockLayout(7, 256, 2, 16, 4),
    "q5_k": BlockLayout(8, 256, 2, 16, 5),
    "q6_k": BlockLayout(9, 256, 1, 16, 6),
    "iq4_xs": BlockLayout(10, 256, 1, 8, 4),
    "q2_k": BlockLayout(11, 256, 2, 32, 4),
    "q3_k": BlockLayout(12, 256, 1, 16, 4),
    "iq1": BlockLayout(13, 256, 1, 16, 4),
    "iq2": BlockLayout(14, 256, 1, 16, 4),
    "iq3_xxs": BlockLayout(15, 256, 1, 16, 4),
    "iq3_s": BlockLayout(16, 256, 1, 16, 4),
}
_SOURCE_TYPES = {FLOAT32: SOURCE_TYPE["float32"], FLOAT16: SOURCE_TYPE["float16"]} | {
    BFLOAT16: SOURCE_TYPE["bfloat16"],
    **dict.fromkeys((FLOAT8_E4M3, FLOAT8_E5M2), SOURCE_TYPE["float8"]),
}


@dataclass
class NativeWeight:
    """A packed matrix [out_features, in_features]."""

    kind: Kind
    out_features: int
    in_features: int
    group_size: int  # int4 and mxfp4: inputs that share a scale; else 0
    has_zeros: bool  # int4: each group has its own zero
    data: Array  # uint8: panels, then int8's scales

    @property
    def kinds(self) -> tuple[str, ...]:
        """The number formats that it is stored in."""
        return (self.kind,)

    @property
    def address(self) -> int:
        return address(self.data)

    @property
    def meets_integers(self) -> bool:
        """Whether it is multiplied with rows of 8-bit integers, and not with floats."""
        return self.kind not in DTYPES

    @property
    def row_group(self) -> int:
        """Inputs of a row that share a scale where it meets this weight; 0: all of them."""
        return BLOCK_KINDS[self.kind].inputs if self.kind in BLOCK_KINDS else 0

    @property
    def family(self) -> str:
        """What its kernels are called after."""
        return "blocks" if self.kind in BLOCK_KINDS else self.kind

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def structure(self) -> Weight:
        """What kernels read; valid as long as `data` lives."""
        scales = None
        if self.kind == "int8":
            scales = self.address + _panel_bytes(self.kind, self.in_features, 0, False) * _num_panels(self.out_features)
        shape, zeros = (self.out_features, self.in_features), int(self.has_zeros)
        block_type = BLOCK_KINDS[self.kind].number if self.kind in BLOCK_KINDS else 0
        return Weight(self.address, scales, *shape, self.group_size, zeros, block_type)


def packed_bytes(kind: Kind, out_features: int, in_features: int, group_size: int = 0, has_zeros: bool = False) -> int:
    """The memory that a packed weight takes."""
    panels = _num_panels(out_features)
    scales = 4 * PANEL * panels if kind == "int8" else 0
    return panels * _panel_bytes(kind, in_features, group_size, has_zeros) + scales


def empty(
    kind: Kind, out_features: int, in_features: int, group_size: int = 0, has_zeros: bool = False
) -> NativeWeight:
    """A weight of zeros, for packers to fill."""
    nbytes = packed_bytes(kind, out_features, in_features, group_size, has_zeros)
    return NativeWeight(kind, out_features, in_features, group_size, has_zeros, zeroed(nbytes))


def pack(parts: Sequence[Array | Float8Part], kind: Kind, group_size: int = DEFAULT_GROUP_SIZE) -> NativeWeight:
    """Pack the rows of all parts [out_i, in], one below the other, quantizing them if `kind` says so.

    Reads each part once and keeps none of them.
    """
    in_features = parts[0].shape[1]
    weight = empty(
        kind, sum(part.shape[0] for part in parts), in_features, _checked_group(kind, group_size, in_features)
    )
    library, structure, first_row = load(), weight.structure(), 0
    for part in parts:
        rows = part.values if isinstance(part, Float8Part) else part
        rows = rows if rows.strides[1] == rows.itemsize else _with_contiguous_rows(rows)
        source = rows, _SOURCE_TYPES[rows.dtype], rows.strides[0] // rows.itemsize, rows.shape[0]
        library.call(f"penstock_pack_{kind}", struct_of(Pack, *source, first_row, _blocks(part), structure))
        first_row += rows.shape[0]
    return weight


def _with_contiguous_rows(transposed: Array) -> Array:
    """A copy, made of so few columns at once that what is read of them stays in the cache."""
    found = numpy.empty(transposed.shape, transposed.dtype)
    for first in range(0, transposed.shape[1], _COLUMNS_AT_ONCE):
        columns = slice(first, first + _COLUMNS_AT_ONCE)
        found[:, columns] = transposed[:, columns]
    return found


def _blocks(part: Array | Float8Part) -> Float8Blocks:
    """Valid as long as the part lives."""
    if not isinstance(part, Float8Part):
        return Float8Blocks()
    scales, meanings = part.scales, code_values(part.values.dtype)
    return struct_of(Float8Blocks, meanings, scales, scales.strides[0] // scales.itemsize, *part.block, *part.offset)


def pack_int8_from(parts: Sequence[tuple[Array, Array]]) -> NativeWeight:
    """Pack integers that a checkpoint brings: (values s8 [out_i, in], scales [out_i]) a part."""
    return _pack_values("int8", [(values, scales, None) for values, scales in parts], group_size=0)


def pack_int4_from(parts: Sequence[tuple[Array, Array, Array | None]], group_size: int) -> NativeWeight:
    """The same in groups: (values u8 0..15 [out_i, in], scales [out_i, groups], zeros u8 [out_i, groups]) a part.

    Zeros are None where they are all 8.
    """
    in_features = parts[0][0].shape[1]
    return _pack_values("int4", parts, _checked_group("int4", group_size, in_features))


def pack_mxfp4(parts: Sequence[Mxfp4Part]) -> NativeWeight:
    """Pack the blocks of all parts [out_i, in] as they are."""
    rows = sum(part.shape[0] for part in parts)
    weight = empty("mxfp4", rows, parts[0].shape[1], BLOCK)
    library, structure, first_row = load(), weight.structure(), 0
    for part in parts:
        codes, exponents = part.codes, part.exponents
        codes = codes if codes.strides[1:] == (BLOCK // 2, 1) else numpy.ascontiguousarray(codes)
        exponents = exponents if exponents.strides[1] == 1 else numpy.ascontiguousarray(exponents)
        strides = codes.strides[0], exponents.strides[0], len(codes)
        library.call("penstock_pack_mxfp4", struct_of(PackMxfp4, codes, exponents, *strides, first_row, structure))
        first_row += len(codes)
    return weight


def _pack_values(
    kind: Literal["int8", "int4"], parts: Sequence[tuple[Array, Array, Array | None]], group_size: int
) -> NativeWeight:
    in_features = parts[0][0].shape[1]
    has_zeros = any(zeros is not None for _, _, zeros in parts)
    weight = empty(kind, sum(values.shape[0] for values, _, _ in parts), in_features, group_size, has_zeros)
    library, structure, first_row = load(), weight.structure(), 0
    for values, scales, zeros in parts:
        values, scales = numpy.ascontiguousarray(values), numpy.ascontiguousarray(scales, FLOAT32)
        zeros = None if zeros is None else numpy.ascontiguousarray(zeros)
        arguments = struct_of(PackValues, values, scales, zeros, values.shape[0], first_row, structure)
        library.call(f"penstock_pack_{kind}_from", arguments)
        first_row += values.shape[0]
    return weight


def _checked_group(kind: Kind, group_size: int, in_features: int) -> int:
    """The group size of a weight: 0 if its kind has no groups, whole rows as one group if asked for as many or more."""
    if kind != "int4":
        return 0
    if group_size >= in_features:
        return padded(in_features)
    if group_size not in GROUP_SIZES:
        raise ValueError(
            f"group_size={group_size} is not supported by the int4 kernels. Use 32, 64, 128, or whole rows "
            f"({in_features} or more here)."
        )
    return group_size


def padded(in_features: int) -> int:
    """Inputs as kernels want them, filled up with zeros."""
    return -(-in_features // ROW_ALIGN) * ROW_ALIGN


def _num_panels(out_features: int) -> int:
    return -(-out_features // PANEL)


def _panel_bytes(kind: Kind, in_features: int, group_size: int, has_zeros: bool) -> int:
    width = padded(in_features)
    if kind in BLOCK_KINDS:
        return in_features // BLOCK_KINDS[kind].inputs * BLOCK_KINDS[kind].nbytes
    if kind == "mxfp4":
        return width // BLOCK * (1 + BLOCK // 2) * PANEL
    if kind == "int4":
        return -(-width // group_size) * ((128 if has_zeros else 64) + group_size * PANEL // 2)
    return width * PANEL * _FLOAT_BYTES.get(kind, 1)
