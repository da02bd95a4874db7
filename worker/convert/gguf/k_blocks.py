"""Writes rows of floats as ggml's blocks of 256 weights, whose groups have small integers as scales.

    Q4_K, Q5_K  8 groups of 32: weight = d × scale × value - dmin × minimum, scales and minima of 6 bits
                bytes: d, dmin (float16), 12 of scales and minima, (Q5_K: 32 of fifth bits), 128 of nibbles
    Q6_K        16 groups of 16: weight = d × scale × (value - 32), scales of 8 bits
                bytes: 128 of low nibbles, 64 of high pairs of bits, 16 of scales, d (float16)

A group's scale is searched: each candidate rounds the weights, and least squares give the scale that fits those values
best; the one with the smallest error is used. Errors of large weights count more. Then the group's scale is rounded
too, and the weights once more.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_BLOCK, _MOST = 256, 63.0  # weights of a block; the largest scale of 6 bits
_TINY = 1e-15
_LEVELS_AT_ONCE = 1 << 18  # weights whose candidates stay in a processor's cache


def q4_k(rows: Tensor) -> Tensor:
    return _by_pieces(rows, _q4_k)


def q5_k(rows: Tensor) -> Tensor:
    return _by_pieces(rows, _q5_k)


def q6_k(rows: Tensor) -> Tensor:
    return _by_pieces(rows, _q6_k)


def _by_pieces(rows: Tensor, quantize: Callable[[Tensor], Tensor]) -> Tensor:
    blocks = rows.reshape(-1, _BLOCK)
    return torch.cat([quantize(piece) for piece in blocks.split(_LEVELS_AT_ONCE // _BLOCK)])


# --- scales and minima -----------------------------------------------------------------------------------------------


def _q4_k(blocks: Tensor) -> Tensor:
    head, values = _with_minima(blocks, most=15, first=-1.0, steps=20)
    pairs = values.view(-1, 4, 2, 32)
    return torch.cat([head, nibbles(pairs[:, :, 0], pairs[:, :, 1]).view(-1, 128)], 1)


def _q5_k(blocks: Tensor) -> Tensor:
    head, values = _with_minima(blocks, most=31, first=-0.5, steps=15)
    # A byte for each index within a group, a bit for each group.
    fifth = (values >> 4) << torch.arange(8, dtype=torch.uint8)[:, None]
    pairs = (values & 15).view(-1, 4, 2, 32)
    return torch.cat([head, fifth.sum(1).to(torch.uint8), nibbles(pairs[:, :, 0], pairs[:, :, 1]).view(-1, 128)], 1)


def _with_minima(blocks: Tensor, most: int, first: float, steps: int) -> tuple[Tensor, Tensor]:
    """d, dmin and the 12 bytes of scales and minima; and the values, 0 to `most`, by group."""
    groups = blocks.view(-1, 8, 32)
    scales, minima = _best_scales_and_minima(groups, most, first, steps)
    largest = [each.amax(1, keepdim=True) for each in (scales, minima)]
    whole = [(divided(_MOST, top) * each).round().clamp(max=_MOST) for top, each in zip(largest, (scales, minima))]
    d, dmin = ((top / _MOST).half() for top in largest)
    by_group, least = d.float() * whole[0], dmin.float() * whole[1]
    values = ((groups + least[:, :, None]) / where_not_0(by_group)[:, :, None]).round().clamp(0, most)
    values = torch.where(by_group[:, :, None] == 0, torch.zeros_like(values), values).to(torch.uint8)
    packed = _six_bits(*(each.to(torch.uint8) for each in whole))
    return torch.cat([bytes_of(d), bytes_of(dmin), packed], 1), values


def _best_scales_and_minima(groups: Tensor, most: int, first: float, steps: int) -> tuple[Tensor, Tensor]:
    """Find each group's scale, and how far its least weight is below 0.

    For levels l and weights w of the errors, Σ w (s l + b - x)² is Σ w x² less the gain

        2 (s Σ w x l + b Σ w x) - (s² Σ w l² + 2 s b Σ w l + b² Σ w)

    The candidate with the largest gain is taken; each begins at the best b so far.
    """
    x = _side_by_side(groups)
    weights = x.square().mean(0).sqrt() + x.abs()
    weighted_x = weights * x
    sum_w, sum_x = weights.sum(0).double(), weighted_x.sum(0).double()
    top = x.amax(0)

    def sums(low: Tensor, reach: float) -> tuple[Tensor, Tensor, Tensor]:
        """Σ w l, Σ w l², Σ w x l, where the levels from `low` to the top are so many."""
        levels = (x - low).mul_(divided(reach, top - low)).round_().clamp_(0, most)
        sum_xl, weighted = (weighted_x * levels).sum(0).double(), weights * levels
        return weighted.sum(0).double(), weighted.mul_(levels).sum(0).double(), sum_xl

    def gain(s: Tensor, b: Tensor, sum_l: Tensor, sum_l2: Tensor, sum_xl: Tensor) -> Tensor:
        return 2 * (s * sum_xl + b * sum_x) - (s * s * sum_l2 + 2 * s * b * sum_l + b * b * sum_w)

    low = x.amin(0).clamp(max=0).double()
    scale = (top - low) / most
    best = gain(scale, low, *sums(low.float(), float(most)))
    for step in range(steps + 1):
        sum_l, sum_l2, sum_xl = sums(low.float(), first + 0.1 * step + most)
        determinant = sum_w * sum_l2 - sum_l * sum_l
        divisor = where_not_0(determinant)
        s, b = (sum_w * sum_xl - sum_x * sum_l) / divisor, (sum_l2 * sum_x - sum_l * sum_xl) / divisor
        # A minimum is at most 0.
        s, b = torch.where(b > 0, sum_xl / where_not_0(sum_l2), s), b.clamp(max=0)
        found = gain(s, b, sum_l, sum_l2, sum_xl)
        is_better = (found > best) & (determinant > 0)
        scale, low, best = (torch.where(is_better, *each) for each in ((s, scale), (b, low), (found, best)))
    return scale.float().view(groups.shape[:2]), -low.float().view(groups.shape[:2])


def _side_by_side(groups: Tensor) -> Tensor:
    """[weights of a group, groups], so that sums over a group are computed for many groups at once."""
    return groups.flatten(0, 1).t().contiguous()


def _six_bits(scales: Tensor, minima: Tensor) -> Tensor:
    """8 scales and 8 minima in 12 bytes: those of groups 0 to 3 in the low bits of bytes 0 to 3 and 4 to 7, the others'
    low bits in bytes 8 to 11, and their high ones above the first."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    return torch.cat([first, second, nibbles(scales[:, 4:] & 15, minima[:, 4:] & 15)], 1)


# --- scales alone ----------------------------------------------------------------------------------------------------


def _q6_k(blocks: Tensor) -> Tensor:
    groups = blocks.view(-1, 16, 16)
    scales = _best_scales(groups)
    largest = scales.gather(1, scales.abs().argmax(1, keepdim=True))
    is_nothing = largest.abs() < _TINY
    factor = torch.where(is_nothing, torch.zeros_like(largest), divided(-128.0, largest))
    d = divided(1.0, factor).half()
    whole = (factor * scales).round().clamp(max=127)
    by_group = (d.float() * whole)[:, :, None]
    values = (groups / where_not_0(by_group)).round().clamp(-32, 31) + 32
    values = torch.where(by_group == 0, torch.where(is_nothing[:, :, None], 0.0, 32.0), values).to(torch.uint8)
    half = values.view(-1, 2, 4, 32)  # 128 weights are 4 rows, whose bits share bytes
    low = nibbles(half[:, :, :2] & 15, half[:, :, 2:] & 15).view(-1, 128)
    high = ((half >> 4) << torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]).sum(2).to(torch.uint8).view(-1, 64)
    return torch.cat([low, high, whole.to(torch.int8).view(torch.uint8), bytes_of(d)], 1)


def _best_scales(groups: Tensor) -> Tensor:
    """Find each group's scale: weight ≈ scale × level, from -32 to 31."""
    x = _side_by_side(groups)
    extreme = x.gather(0, x.abs().argmax(0, keepdim=True))[0]
    weights = x.square()

    def sums(reach: float) -> tuple[Tensor, Tensor]:
        levels = (x * divided(-reach, extreme)).round_().clamp_(-32, 31)
        weighted = weights * levels
        return (weighted * x).sum(0), weighted.mul_(levels).sum(0)

    sum_xl, sum_l2 = sums(32.0)
    scale = sum_xl / where_not_0(sum_l2)
    best = scale * sum_xl
    for step in (*range(-9, 0), *range(1, 10)):
        sum_xl, sum_l2 = sums(32.0 + 0.1 * step)
        is_better = (sum_l2 > 0) & (sum_xl * sum_xl > best * sum_l2)
        fitted = sum_xl / where_not_0(sum_l2)
        scale = torch.where(is_better, fitted, scale)
        best = torch.where(is_better, fitted * sum_xl, best)
    return torch.where(extreme.abs() < _TINY, torch.zeros_like(scale), scale).view(groups.shape[:2])


# --- bytes, and divisions by scales of which some are 0 --------------------------------------------------------------


def bytes_of(numbers: Tensor) -> Tensor:
    """[blocks, n] of a wider type, as uint8 [blocks, n × its size]."""
    return numbers.contiguous().view(torch.uint8)


def nibbles(low: Tensor, high: Tensor) -> Tensor:
    return low | high << 4


def divided(number: float, scales: Tensor) -> Tensor:
    """number / scale, and 0 where the scale is."""
    # Divide by a tensor: torch turns number / tensor into a product with the inverse, which rounds twice.
    return torch.where(scales == 0, torch.zeros_like(scales), torch.tensor(number) / where_not_0(scales))


def where_not_0(numbers: Tensor) -> Tensor:
    """Replace 0 by 1, for use as a divisor."""
    return torch.where(numbers == 0, torch.ones_like(numbers), numbers)
