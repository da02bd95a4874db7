"""Rows of a weight matrix as a quantized checkpoint stores them: small integers, with scales for groups of inputs.

One form for what several tools write: [out, in] in integers that are centred on 0 (8 bits, signed) or on 8 (4 bits,
unsigned), whatever the file's own packing.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

_GROUPS = (128, 64, 32)  # inputs in a group of 4 bits that every kernel multiplies
MIDDLE = 8  # the zero of 4-bit values, where groups have none of their own


@dataclass(frozen=True, eq=False)
class QuantizedPart:
    """weight[n, order[k]] = (values[n, k] - zero) × scales[n, k // group_size], the sum of these where an input meets
    several values."""

    values: Tensor  # [out, in]: uint8 0..15, or int8
    scales: Tensor  # [out, groups]
    zeros: Tensor | None  # [out, groups]: uint8 for 4 bits, int16 for 8; None: all 8, or all 0
    group_size: int  # inputs that share a scale; the last group may be shorter
    order: Tensor | None = None  # int32 [in], where values aren't in the order of inputs: which input meets value k

    @classmethod
    def of(
        cls,
        bits: int,
        values: Tensor,
        scales: Tensor,
        zeros: Tensor | None,
        group_size: int,
        order: Tensor | None = None,
    ) -> "QuantizedPart":
        """From unsigned values and zeros (uint8) of 4 or 8 bits; None: zeros in the middle of the range."""
        if bits == 8:
            values = values.bitwise_xor(128).view(torch.int8)
            zeros = None if zeros is None else zeros.to(torch.int16) - 128
        if zeros is not None and bool((zeros == (MIDDLE if bits == 4 else 0)).all()):
            zeros = None
        return cls(values.contiguous(), scales.contiguous(), zeros, group_size, order)

    @property
    def bits(self) -> int:
        return 4 if self.values.dtype == torch.uint8 else 8

    def is_grouped_like(self, other: "QuantizedPart") -> bool:
        """Whether one row of both together would have one group size and one order of inputs."""
        if self.order is None or other.order is None:
            return self.group_size == other.group_size and self.order is other.order
        return self.group_size == other.group_size and torch.equal(self.order, other.order)

    @property
    def nbytes(self) -> int:
        """As the file stores it, 4-bit values two a byte."""
        zeros = 0 if self.zeros is None else self.zeros.numel() * self.bits // 8
        return self.values.numel() * self.bits // 8 + self.scales.nbytes + zeros

    def to(self, device: torch.device, dtype: torch.dtype, copy: bool = True) -> Tensor:
        """As floats, on a device, like the tensor method of this name; always a copy."""
        return self.dequantized(dtype).to(device)

    def rows(self, first: int, end: int) -> "QuantizedPart":
        """Some of the outputs."""
        own = slice(first, end)
        zeros = None if self.zeros is None else self.zeros[own]
        return replace(self, values=self.values[own], scales=self.scales[own], zeros=zeros)

    def transposed(self) -> Tensor:
        """[in, out] as floats, for scales are by output."""
        return self.dequantized().T

    def dequantized(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """[out, in] as floats, the inputs in their natural order."""
        zeros = self.zeros if self.zeros is not None else torch.tensor([[MIDDLE if self.bits == 4 else 0]])
        scales = self._per_input(self.scales.float())
        weight = (self.values.float() - self._per_input(zeros.float())).mul_(scales)
        if self.order is not None:
            inputs = torch.zeros(len(weight), int(self.order.max()) + 1)
            weight = inputs.index_add_(1, self.order.long(), weight)
        return weight.to(dtype)

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
        of_group = torch.arange(width // group) * group // self.group_size
        scales = self.scales.float()[:, of_group]
        zeros = torch.zeros_like(scales, dtype=torch.int16) if self.zeros is None else self.zeros[:, of_group]
        # What fills the last group is its zero, and adds nothing whichever input it meets.
        values = zeros.repeat_interleave(group, 1)
        values[:, :inputs] = self.values
        order = torch.zeros(width, dtype=torch.int32)
        order[:inputs] = torch.arange(inputs) if self.order is None else self.order
        return QuantizedPart(
            torch.cat(((values >> 4) + MIDDLE, values & 15), 1).to(torch.uint8),
            torch.cat((16 * scales, scales), 1),
            torch.cat(((zeros >> 4) + MIDDLE, zeros & 15), 1).to(torch.uint8),
            group,
            torch.cat((order, order)),
        )

    def _per_input(self, per_group: Tensor) -> Tensor:
        if per_group.shape[1] == 1:
            return per_group
        return per_group.repeat_interleave(self.group_size, 1)[:, : self.values.shape[1]]
