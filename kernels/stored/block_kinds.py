"""The kinds in which blocks of ggml's types are multiplied, and what a code of each stands for.

    number = d × unit × scales[g] × value of its code - dmin × mins[g],    g the group of neighbours that it lies in

Several types may be of one kind: those of 1 to 3 bits become nibbles that stand for the few numbers they have. How
codes lie in memory is each device's own business.
"""

from typing import NamedTuple, get_args

import numpy

from ..arrays import Array
from ..operands import BlockKind, Kind
from .ggml_blocks import IQ4_VALUES, TYPES
from .mxfp4 import DOUBLED


class BlockCodes(NamedTuple):
    block: int  # neighbours that share d, and dmin
    group: int  # neighbours that share a scale, and a min; a block is one group where it has none of its own
    bits: int  # of a code
    zero: int = 0  # the code that stands for 0, where the others stand for their distance from it
    values: tuple[int, ...] = ()  # what codes stand for, where they are looked up
    has_mins: bool = False
    unit: float = 1.0  # what the file's d is multiplied by

    def of(self, values: Array) -> Array:
        """uint8: the codes of int8 values."""
        if not self.values:
            return values.view(numpy.uint8) + numpy.uint8(self.zero)
        codes = numpy.zeros(256, numpy.uint8)
        # Where several codes stand for one value, as two of MXFP4 do for 0, it is the first of them.
        for code, value in reversed([*enumerate(self.values)]):
            codes[value & 255] = code
        return codes.take(values.view(numpy.uint8))

    def of_groups(self, numbers: Array | None, blocks: Array) -> Array:
        """int8 [out, blocks, groups]: scales or mins of these blocks [out, blocks, …]; a type may have fewer."""
        num_groups = self.block // self.group
        if numbers is None:
            return numpy.ones((*blocks.shape[:2], num_groups), numpy.int8)
        return numbers.astype(numpy.int8).repeat(num_groups // numbers.shape[2], 2)


CODES: dict[Kind, BlockCodes] = {
    "q4_0": BlockCodes(32, 32, 4, zero=8),
    "q4_1": BlockCodes(32, 32, 4, has_mins=True),
    "q5_0": BlockCodes(32, 32, 5, zero=16),
    "q5_1": BlockCodes(32, 32, 5, has_mins=True),
    "q8_0": BlockCodes(32, 32, 8, zero=128),
    "iq4_nl": BlockCodes(32, 32, 4, values=IQ4_VALUES),
    "mxfp4": BlockCodes(32, 32, 4, values=DOUBLED),  # d is a power of 2
    "q4_k": BlockCodes(256, 32, 4, has_mins=True),
    "q5_k": BlockCodes(256, 32, 5, has_mins=True),
    "q6_k": BlockCodes(256, 16, 6, zero=32),
    "iq4_xs": BlockCodes(256, 32, 4, values=IQ4_VALUES),
    "q2_k": BlockCodes(256, 16, 4, has_mins=True),
    "q3_k": BlockCodes(256, 16, 4, zero=4),
    "iq1": BlockCodes(256, 16, 4, values=(-9, -7, -1, 1, 7, 9), unit=1 / 8),
    "iq2": BlockCodes(256, 16, 4, values=(-43, -25, -8, 8, 25, 43), unit=1 / 8),
    "iq3_xxs": BlockCodes(256, 16, 4, values=(-62, *range(-52, 0, 8), *range(4, 53, 8), 62), unit=1 / 4),
    "iq3_s": BlockCodes(256, 16, 4, values=tuple(range(-15, 16, 2))),
}
SMALLER_TYPES: dict[str, BlockKind] = {
    "Q2_K": "q2_k",
    **dict.fromkeys(("Q3_K", "TQ1_0", "TQ2_0"), "q3_k"),
    **dict.fromkeys(("IQ1_S", "IQ1_M"), "iq1"),
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ2_S"), "iq2"),
    "IQ3_XXS": "iq3_xxs",
    "IQ3_S": "iq3_s",
}
# The kind of each of ggml's types that has one; MXFP4, which published checkpoints have too, is not among them.
KINDS_OF_TYPES: dict[str, BlockKind] = {
    **{kind.upper(): kind for kind in get_args(BlockKind) if kind.upper() in TYPES},
    **SMALLER_TYPES,
}
KINDS: dict[str, Kind] = {**KINDS_OF_TYPES, "MXFP4": "mxfp4"}  # by ggml's types, of a GPU's blocks
