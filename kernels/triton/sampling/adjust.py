"""Masks and penalties, in place, each with as much work as there are tokens or mask words.

A token that stands in a history several times must be penalized once, from the logit as it was. Who comes first to a
token is left to chance, what is done is not: the first one takes a bit (or the count) out of scratch memory and does
all, the others find nothing. Roundings are those of the reference.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference.sampling.adjust import apply_mask, penalize_generated, penalize_repetition
from ...sampling import Histories

_BLOCK = 1024  # tokens of a history, or of the vocabulary, that a program looks at
_ROWS_AT_ONCE = 32  # whose counts are in memory: 19 MiB for a vocabulary of 152k


@triton.jit
def _mask(logits, stride, width, rows, bits, words, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    ids = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_token = ids < width
    word = tl.load(bits + row.to(tl.int64) * words + ids // 32, mask=is_token, other=-1)
    is_banned = ((word >> (ids % 32)) & 1) == 0
    target = logits + tl.load(rows + row) * stride + ids
    tl.store(target, tl.full([BLOCK], -float("inf"), tl.float32), mask=is_token & is_banned)


@triton.jit
def _tokens(tokens, longest_possible, slots, lengths, row, BLOCK: tl.constexpr):
    """A block of a row's history: positions, tokens, and which of them are there."""
    positions = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_there = positions < tl.load(lengths + row)
    history = tokens + tl.load(slots + row) * longest_possible
    return positions, tl.load(history + positions, mask=is_there, other=0), is_there


@triton.jit(do_not_specialize=["longest_possible"])
def _repetition(
    logits, stride, rows, tokens, longest_possible, slots, lengths, penalties, seen, words, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    _, ids, is_there = _tokens(tokens, longest_possible, slots, lengths, row, BLOCK)
    bit = tl.full([BLOCK], 1, tl.int32) << (ids % 32)
    before = tl.atomic_or(seen + row.to(tl.int64) * words + ids // 32, bit, mask=is_there, sem="relaxed")
    is_first = is_there & ((before & bit) == 0)
    target = logits + tl.load(rows + row) * stride + ids
    value = tl.load(target, mask=is_first, other=0.0)
    penalty = tl.load(penalties + row)
    tl.store(target, tl.where(value > 0, tl.div_rn(value, penalty), value * penalty), mask=is_first)


@triton.jit(do_not_specialize=["longest_possible"])
def _count(tokens, longest_possible, slots, lengths, starts, counts, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    positions, ids, is_there = _tokens(tokens, longest_possible, slots, lengths, row, BLOCK)
    is_there &= positions >= tl.load(starts + row)
    tl.atomic_add(counts + row.to(tl.int64) * width + ids, 1, mask=is_there, sem="relaxed")


@triton.jit(do_not_specialize=["longest_possible"])
def _generated(
    logits, stride, rows, tokens, longest_possible, slots, lengths, starts, frequencies, presences, counts, width,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    positions, ids, is_there = _tokens(tokens, longest_possible, slots, lengths, row, BLOCK)
    is_there &= positions >= tl.load(starts + row)
    # Taking leaves 0: for the token's next occurrence, and for the next rows that use this memory.
    count = tl.atomic_xchg(counts + row.to(tl.int64) * width + ids, 0, mask=is_there, sem="relaxed")
    is_first = is_there & (count > 0)
    penalty = count.to(tl.float32) * tl.load(frequencies + row) + tl.load(presences + row)
    target = logits + tl.load(rows + row) * stride + ids
    tl.store(target, tl.load(target, mask=is_first, other=0.0) - penalty, mask=is_first)


@apply_mask.implement("triton")
def mask(logits: Tensor, rows: Tensor, bits: Tensor) -> Tensor:
    width = logits.shape[1]
    grid = (len(rows), triton.cdiv(width, _BLOCK))
    _mask[grid](logits, logits.stride(0), width, rows, bits.contiguous(), bits.shape[1], BLOCK=_BLOCK)
    return logits


@penalize_repetition.implement("triton")
def repetition(logits: Tensor, histories: Histories, penalty: Tensor) -> Tensor:
    words = triton.cdiv(logits.shape[1], 32)
    seen = torch.zeros(len(histories.rows), words, dtype=torch.int32, device=logits.device)
    grid = (len(histories.rows), triton.cdiv(histories.longest, _BLOCK))
    of_logits = (logits, logits.stride(0), histories.rows)
    _repetition[grid](*of_logits, *_lines(histories), penalty, seen, words, BLOCK=_BLOCK)
    return logits


@penalize_generated.implement("triton")
def generated(logits: Tensor, histories: Histories, starts: Tensor, frequency: Tensor, presence: Tensor) -> Tensor:
    total, width = len(histories.rows), logits.shape[1]
    counts = torch.zeros(min(total, _ROWS_AT_ONCE), width, dtype=torch.int32, device=logits.device)
    for first in range(0, total, _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        grid = (min(total - first, _ROWS_AT_ONCE), triton.cdiv(histories.longest, _BLOCK))
        lines = (*_lines(histories, some), starts[some])
        _count[grid](*lines, counts, width, BLOCK=_BLOCK)
        # Not fused, the product is rounded before the sum, as the reference's is.
        _generated[grid](
            logits, logits.stride(0), histories.rows[some], *lines, frequency[some], presence[some], counts, width,
            BLOCK=_BLOCK, enable_fp_fusion=False,
        )  # fmt: skip
    return logits


def _lines(histories: Histories, some: slice = slice(None)) -> tuple[Tensor, int, Tensor, Tensor]:
    """Where kernels find the histories of some rows."""
    return histories.tokens, histories.tokens.stride(0), histories.slots[some], histories.lengths[some]
