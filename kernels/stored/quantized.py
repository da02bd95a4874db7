"""Rows of a weight matrix as a quantized checkpoint stores them: small integers, with scales for groups of inputs.

One form for what several tools write: [out, in] in integers that are centred on 0 (8 bits, signed) or on 8 (4 bits,
unsigned), whatever the file's own packing.
"""

from dataclasses import replace

import numpy

from ...records import dataclass
from ..arrays import FLOAT32, Array

_GROUPS = (128, 64, 32)  # inputs in a group of 4 bits that every kernel multiplies
MIDDLE = 8  # the zero of 4-bit values, where groups have none of their own


@dataclass(frozen=True, eq=False)
class QuantizedPart:
    """weight[n, order[k]] = (values[n, k] - zero) × scales[n, k // group_size], the sum of these where an input meets
    several values."""

    values: Array  # [out, in]: uint8 0..15, or int8
    scales: Array  # [out, groups]
    zeros: Array | None  # [out, groups]: uint8 for 4 bits, int16 for 8; None: all 8, or all 0
    group_size: int  # inputs that share a scale; the last group may be shorter
    order: Array | None = None  # int32 [in], where values aren't in the order of inputs: which input meets value k

    @classmethod
    def of(
        cls,
        bits: int,
        values: Array,
        scales: Array,
        zeros: Array | None,
        group_size: int,
        order: Array | None = None,
    ) -> "QuantizedPart":
        """From unsigned values and zeros (uint8) of 4 or 8 bits; None: zeros in the middle of the range."""
        if bits == 8:
            values = (values ^ 128).view(numpy.int8)
            zeros = None if zeros is None else zeros.astype(numpy.int16) - 128
        if zeros is not None and (zeros == (MIDDLE if bits == 4 else 0)).all():
            zeros = None
        return cls(numpy.ascontiguousarray(values), numpy.ascontiguousarray(scales), zeros, group_size, order)

    @property
    def bits(self) -> int:
        return 4 if self.values.dtype == numpy.uint8 else 8

    def is_grouped_like(self, other: "QuantizedPart") -> bool:
        """Whether one row of both together would have one group size and one order of inputs."""
        if self.order is None or other.order is None:
            return self.group_size == other.group_size and self.order is other.order
        return self.group_size == other.group_size and numpy.array_equal(self.order, other.order)

    @property
    def nbytes(self) -> int:
        """As the file stores it, 4-bit values two a byte."""
        zeros = 0 if self.zeros is None else self.zeros.size * self.bits // 8
        return self.values.size * self.bits // 8 + self.scales.nbytes + zeros

    def rows(self, first: int, end: int) -> "QuantizedPart":
        """Some of the outputs."""
        own = slice(first, end)
        zeros = None if self.zeros is None else self.zeros[own]
        return replace(self, values=self.values[own], scales=self.scales[own], zeros=zeros)

    def transposed(self) -> Array:
        """[in, out] as floats, for scales are by output."""
        return self.dequantized().T

    def dequantized(self) -> Array:
        """float32 [out, in], the inputs in their natural order."""
        weight = numpy.empty(self.values.shape, FLOAT32)
        scales = self.scales.astype(FLOAT32)
        middle = numpy.float32(MIDDLE if self.bits == 4 else 0)
        for group in range(scales.shape[1]):
            inputs = slice(group * self.group_size, (group + 1) * self.group_size)
            zeros = middle if self.zeros is None else self.zeros[:, group, None].astype(FLOAT32)
            own = numpy.subtract(self.values[:, inputs], zeros, out=weight[:, inputs])
            own *= scales[:, group, None]
        return weight if self.order is None else _added_by_input(weight, self.order)

    def as_nibbles(self) -> "QuantizedPart | None":
        """8 bits in groups as two 4-bit values each, value = 16 × high + low, for products that have groups of 4 bits
        only. Exact; None where its groups divide into none of theirs."""
        size = self.group_size if self.group_size < self.values.shape[1] else _GROUPS[0]
        group = next((group for group in _GROUPS if size % group == 0), None)
        if group is None:
            return None
        inputs = self.values.shape[1]
        width = inputs + -inputs % group
        # Of each of the new groups: the scale and the zero of the group that it is a piece of.
        of_group = numpy.arange(width // group) * group // self.group_size
        scales = self.scales.astype(FLOAT32)[:, of_group]
        zeros = numpy.zeros(scales.shape, numpy.int16) if self.zeros is None else self.zeros[:, of_group]
        # What fills the last group is its zero, and adds nothing whichever input it meets.
        values = zeros.repeat(group, 1)
        values[:, :inputs] = self.values
        order = numpy.zeros(width, numpy.int32)
        order[:inputs] = numpy.arange(inputs) if self.order is None else self.order
        return QuantizedPart(
            _high_and_low(values),
            numpy.concatenate((16 * scales, scales), 1),
            _high_and_low(zeros),
            group,
            numpy.concatenate((order, order)),
        )


def _high_and_low(numbers: Array) -> Array:
    """uint8 [out, 2 × n] of int16 [out, n] from -128 to 127: their high halves around `MIDDLE`, then their low ones."""
    return numpy.concatenate(((numbers >> 4) + MIDDLE, numbers & 15), 1).astype(numpy.uint8)


def _added_by_input(weight: Array, order: Array) -> Array:
    """[out, inputs]: the sum of the values that each input meets, of which there is one at least."""
    by_input = numpy.argsort(order, kind="stable")
    _, firsts = numpy.unique(order[by_input], return_index=True)
    inputs: Array = weight.take(by_input, 1)
    if len(firsts) < len(order):
        inputs = numpy.add.reduceat(inputs, firsts, 1)
    inputs += 0.0  # no zero has a sign
    return inputs
