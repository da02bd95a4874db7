"""Products of 8-bit rows with 8-bit or 4-bit weights: what the native kernels compute, said in torch.

    output[m, n] = (Σ_g weight_scale[n, g] × Σ_k in g (value[n, k] - zero[n, g]) × x[m, k]) × scale[m] + bias[n]

Rows are quantized as they come, each with a scale of its own. Sums within a group are exact, so the integers agree with
the kernels' and only the last rounding of float32 may differ. Serves machines without native kernels too.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..registry import op
from ..stored.quantized import MIDDLE

SMALLEST = 1e-30  # kSmallest: a row with nothing above counts as zeros
EXACT_INPUTS = 1024  # so many products of two 8-bit numbers add up to less than 2^24, exactly in float32
RANGES = tuple(5.2 + 0.5 * step for step in range(10))  # what a group's extreme is laid onto, to be tried


class QuantizedTensor(NamedTuple):
    """As a `QuantizedPart` says, in tensors."""

    values: Tensor
    scales: Tensor
    zeros: Tensor | None
    group_size: int
    order: Tensor | None = None

    @property
    def middle(self) -> int:
        """The zero of groups that have none of their own."""
        return MIDDLE if self.values.dtype == torch.uint8 else 0

    def dequantized(self) -> Tensor:
        """float32 [out, in], the inputs in their natural order."""
        zeros = torch.full_like(self.scales[:1], self.middle) if self.zeros is None else self.zeros
        weight = (self.values.float() - self._by_input(zeros)) * self._by_input(self.scales)
        if self.order is None:
            return weight
        inputs = weight.new_zeros(len(weight), int(self.order.max()) + 1)
        return inputs.index_add_(1, self.order.long(), weight)

    def _by_input(self, numbers: Tensor) -> Tensor:
        return numbers.float().repeat_interleave(self.group_size, 1)[:, : self.values.shape[1]]


@op(tolerance=0)
def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """[M, K] as int8 values and a float32 scale per row; the scale is NaN where something is not finite."""
    x = x.float()
    magnitude = x.abs().amax(1)
    is_finite, is_zero = magnitude.isfinite(), magnitude < SMALLEST
    # Divided by a tensor: torch makes a number divided by a tensor a product with its inverse, which rounds twice.
    inverse = torch.where(is_finite & ~is_zero, torch.tensor(127.0) / magnitude, torch.zeros_like(magnitude))
    values = (x * inverse[:, None]).round().nan_to_num(0.0, 0.0, 0.0).to(torch.int8)
    scales = torch.where(is_zero, torch.zeros_like(magnitude), magnitude / 127.0)
    return values, torch.where(is_finite, scales, torch.full_like(scales, float("nan")))


def quantize_int8(weight: Tensor) -> QuantizedTensor:
    """[N, K] with one scale for each output feature."""
    values, scales = quantize_rows(weight)
    return QuantizedTensor(values, scales[:, None], None, group_size=weight.shape[1])


def quantize_int4(weight: Tensor, group_size: int) -> QuantizedTensor:
    """[N, K] in groups of inputs, each with the float16 scale that of `RANGES` fits it best."""
    rows, inputs = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -inputs % group_size))
    groups = padded.view(rows, -1, group_size)
    scales = _best_scales(groups).half()
    inverse = torch.where(scales == 0, torch.zeros_like(scales, dtype=torch.float32), 1.0 / scales.float())
    levels = _levels(groups, inverse) + MIDDLE
    values = levels.to(torch.uint8).view(rows, -1)[:, :inputs].contiguous()
    return QuantizedTensor(values, scales, None, group_size)


def linear_quantized(x: Tensor, weight: QuantizedTensor, bias: Tensor | None) -> Tensor:
    """[M, K] × weightᵀ + bias in x's dtype."""
    values, scales = quantize_rows(x if weight.order is None else x[:, weight.order.long()])
    output = torch.zeros(x.shape[0], weight.values.shape[0])
    middle = torch.tensor(float(weight.middle))
    for group, start in enumerate(range(0, x.shape[1], weight.group_size)):
        end = min(start + weight.group_size, x.shape[1])
        zero = middle if weight.zeros is None else weight.zeros[:, group, None].float()
        centred = weight.values[:, start:end].float() - zero
        output += _exact_product(values[:, start:end].float(), centred) * weight.scales[:, group].float()
    output *= scales[:, None]
    return (output if bias is None else output + bias.float()).to(x.dtype)


def _exact_product(rows: Tensor, weight: Tensor) -> Tensor:
    """Integers in float32, multiplied without rounding but for the last."""
    pieces = zip(rows.split(EXACT_INPUTS, 1), weight.split(EXACT_INPUTS, 1), strict=True)
    return sum((a @ b.T).double() for a, b in pieces).float()


def _best_scales(groups: Tensor) -> Tensor:
    """The scale of each group with the least squared error, which is Σ w² - (Σ w q)² / Σ q²."""
    extreme = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)
    safe = torch.where(extreme.abs() < SMALLEST, torch.ones_like(extreme), extreme)
    best, best_gain = torch.zeros_like(extreme), torch.full_like(extreme, -1.0)
    for reach in RANGES:
        levels = _levels(groups, -reach / safe)
        product, square = (groups * levels).sum(2), (levels * levels).sum(2).clamp_(min=1.0)
        gain = product * product / square
        best = torch.where(gain > best_gain, product / square, best)
        best_gain = torch.maximum(gain, best_gain)
    return best


def _levels(groups: Tensor, inverse: Tensor) -> Tensor:
    return (groups * inverse[..., None]).round_().clamp_(-8, 7)
