"""Log-probabilities, ranks and the most likely tokens, in two launches.

`_weigh` reads each logit once: it sums a chunk's exponentials, counts what comes before the chosen token, and takes out
the chunk's first ones one after the other; `_rank` does the same with what the chunks found. A value and its id stand
in one integer, so that the order among equals is that of the ids.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference.sampling.logprobs import ranked_logprobs
from ...reference.sampling.order import most_likely
from ...sampling import RankedLogprobs
from ..launch.tuning import LaunchConfig, Tuning
from ..rows import NONE, id_of, in_order, value_of

_AT_MOST = (0, 5, 20)  # most likely tokens that a kernel is compiled for; more are left to torch's sort

# One choice: sums over chunks must be the same in every process.
_ON_GPU = LaunchConfig.of(num_warps=4, CHUNK=2048)
_INTERPRETED = LaunchConfig.of(CHUNK=512)
_TUNING = Tuning("ranked_logprobs", lambda architecture, key: _ON_GPU if architecture else _INTERPRETED, [_ON_GPU])


@triton.jit
def _weigh(
    logits, stride, chosen, peaks, sums, ahead, firsts, WIDTH: tl.constexpr, CHUNK: tl.constexpr, TOP: tl.constexpr
):
    row, chunk = tl.program_id(0), tl.program_id(1)
    slot = row * tl.num_programs(1) + chunk
    of_row = logits + row.to(tl.int64) * stride
    ids = chunk * CHUNK + tl.arange(0, CHUNK)
    is_token = ids < WIDTH
    values = tl.load(of_row + ids, mask=is_token, other=-float("inf"))
    peak = tl.max(values, 0)
    tl.store(peaks + slot, peak)
    tl.store(sums + slot, tl.sum(tl.where(values > -float("inf"), tl.exp(values - peak), 0.0), 0))
    token = tl.load(chosen + row)
    value = tl.load(of_row + token)
    is_ahead = is_token & ((values > value) | ((values == value) & (ids < token)))
    tl.store(ahead + slot, tl.sum(is_ahead.to(tl.int32), 0))
    if TOP:
        keys = tl.where(is_token, in_order(values, ids), NONE)
        for place in range(TOP):
            first = tl.max(keys, 0)
            tl.store(firsts + slot.to(tl.int64) * TOP + place, first)
            keys = tl.where(keys == first, NONE, keys)


@triton.jit(do_not_specialize=["num_top", "columns"])
def _rank(
    logits, stride, chosen, peaks, sums, ahead, firsts, chunks, num_top, normalizers, token_ids, logprobs, ranks,
    columns, CHUNKS: tl.constexpr, TOP: tl.constexpr, TOP_ROUNDED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    indices = tl.arange(0, CHUNKS)
    is_chunk = indices < chunks
    of_chunks = tl.load(peaks + row * chunks + indices, mask=is_chunk, other=-float("inf"))
    largest = tl.max(of_chunks, 0)
    shares = tl.where(of_chunks > -float("inf"), tl.exp(of_chunks - largest), 0.0)
    total = tl.log(tl.sum(shares * tl.load(sums + row * chunks + indices, mask=is_chunk, other=0.0), 0))
    tl.store(normalizers + row, largest + total)
    token = tl.load(chosen + row)
    tl.store(token_ids + row * columns, token.to(tl.int32))
    tl.store(logprobs + row * columns, tl.load(logits + row.to(tl.int64) * stride + token) - largest - total)
    tl.store(ranks + row, tl.sum(tl.load(ahead + row * chunks + indices, mask=is_chunk, other=0), 0) + 1)
    if TOP:
        tops = tl.arange(0, TOP_ROUNDED)
        of_row = firsts + row.to(tl.int64) * chunks * TOP
        is_there = is_chunk[:, None] & (tops < TOP)[None, :]
        keys = tl.load(of_row + indices[:, None] * TOP + tops[None, :], mask=is_there, other=NONE)
        for place in range(TOP):
            first = tl.max(tl.max(keys, 1), 0)
            value = value_of(first)
            column = row * columns + 1 + place
            tl.store(token_ids + column, id_of(first), mask=place < num_top)
            tl.store(logprobs + column, value - largest - total, mask=place < num_top)
            keys = tl.where(keys == first, NONE, keys)


@ranked_logprobs.implement("triton")
def ranked(logits: Tensor, chosen: Tensor, num_top: int) -> RankedLogprobs:
    (rows, width), device = logits.shape, logits.device
    blocks = _TUNING.choice((width,))
    chunks = triton.cdiv(width, blocks["CHUNK"])
    top = next((most for most in _AT_MOST if num_top <= most), 0)
    # Not one tensor: each begins at a multiple of 16 bytes whatever the number of rows.
    peaks, sums = (torch.empty(rows, chunks, dtype=torch.float32, device=device) for _ in range(2))
    ahead = torch.empty(rows, chunks, dtype=torch.int32, device=device)
    firsts = torch.empty(rows, chunks, top, dtype=torch.int64, device=device)
    normalizers = torch.empty(rows, 1, dtype=torch.float32, device=device)
    found = RankedLogprobs(
        torch.empty(rows, 1 + num_top, dtype=torch.int32, device=device),
        torch.empty(rows, 1 + num_top, dtype=torch.float32, device=device),
        torch.empty(rows, dtype=torch.int32, device=device),
    )
    weighed = (logits, logits.stride(0), chosen, peaks, sums, ahead, firsts)
    _weigh[rows, chunks](*weighed, WIDTH=width, TOP=top, **blocks.options)
    rounded = {"CHUNKS": triton.next_power_of_2(chunks), "TOP_ROUNDED": triton.next_power_of_2(max(top, 1))}
    _rank[rows,](*weighed, chunks, min(num_top, top), normalizers, *found, 1 + num_top, TOP=top, num_warps=8, **rounded)
    if num_top > top:
        values, ids = most_likely(logits, num_top)
        found.token_ids[:, 1:], found.logprobs[:, 1:] = ids, values - normalizers
    return found
