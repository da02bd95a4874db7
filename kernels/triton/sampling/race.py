"""One token for each row of logits, in three launches that ask the host for nothing; in one where all take their best.

`_scan` masks and finds the largest of every chunk of a row; `_truncate` finds what top_k and top_p leave of rows that
want it; `_draw` finds which of that comes first in every chunk. What chunks have found is put together by the last
program of a row, which writes the token down. Only `_truncate` has a program go through a whole row. Sizes of chunks
don't depend on the number of rows, so neither do a row's bits.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import sampling
from ...reference.sampling.race import DeviceMask, choose_on_device
from ...sampling import NOT_FINITE, NOTHING_LEFT, DeviceDraws
from ..arrival import counters, is_last
from ..launch.tuning import LaunchConfig, Tuning
from .truncation import truncated

# Of random numbers by counter: `reference.sampling.uniform`, word for word.
_STEP = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)
_BEST = tl.constexpr(sampling.BEST)
_OF_TOP_K = tl.constexpr(sampling.OF_TOP_K)
_OF_TOP_P = tl.constexpr(sampling.OF_TOP_P)
# Lines of the matrices `reals` and `wholes`.
_TEMPERATURE, _TOP_P, _MIN_P = (tl.constexpr(sampling.REALS.index(name)) for name in ("temperature", "top_p", "min_p"))
_TOP_K, _SEED, _SAMPLE = (tl.constexpr(sampling.WHOLES.index(name)) for name in ("top_k", "seed", "sample"))
_NOT_FINITE = tl.constexpr(NOT_FINITE)
_NOTHING_LEFT = tl.constexpr(NOTHING_LEFT)

# One choice: sums over chunks and the order of equals must be the same in every process.
_ON_GPU = LaunchConfig.of(num_warps=4, CHUNK=2048, BLOCK=8192)
_INTERPRETED = LaunchConfig.of(CHUNK=256, BLOCK=512)
_TUNING = Tuning("choose_on_device", lambda architecture, key: _ON_GPU if architecture else _INTERPRETED, [_ON_GPU])
_WARPS_OF_A_ROW = 32  # where one program reads a whole row, so many bytes are on their way at once


@triton.jit
def stream(seed, sample, position):
    """The hash of what a row's draws have in common, to be continued by `exponential`."""
    state = _mixed(seed.to(tl.uint64) + _STEP)
    state = _mixed(state + (sample.to(tl.uint64) + 1) * _STEP)
    return _mixed(state + (position.to(tl.uint64) + 1) * _STEP)


@triton.jit
def exponential(of_row, draws):
    """One float32 of mean 1 for each of `draws`, integers."""
    state = _mixed(of_row + (draws.to(tl.uint64) + 1) * _STEP)
    share = ((state >> 24).to(tl.int64).to(tl.float32) + 0.5) * 9.094947017729282e-13  # 2^-40
    of_small = share * (1.0 + share * (0.5 + share * 0.3333333333333333))
    return tl.where(share < 0.01, of_small, -tl.log(tl.maximum(1.0 - share, 1.4901161193847656e-08)))  # 2^-26


@triton.jit
def _mixed(state):
    state = (state ^ (state >> 30)) * _FIRST
    state = (state ^ (state >> 27)) * _SECOND
    return state ^ (state >> 31)


@triton.jit(do_not_specialize=["longest"])
def _scan(
    logits, stride, slots, kinds, lines, bits, words, peaks, bests, largest_of_row,
    positions, histories, longest, chosen, arrived,
    IS_MASKED: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row, chunk, chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    slot = tl.load(slots + row).to(tl.int64)
    if slot >= 0:
        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        of_row = logits + row.to(tl.int64) * stride + ids
        values = tl.load(of_row, mask=ids < WIDTH, other=-float("inf"))
        if IS_MASKED:
            line = tl.load(lines + row).to(tl.int64)
            word = tl.load(bits + line * words + ids // 32, mask=(ids < WIDTH) & (line >= 0), other=-1)
            is_banned = ((word >> (ids % 32)) & 1) == 0
            values = tl.where(is_banned, -float("inf"), values)
            tl.store(of_row, values, mask=is_banned)
        is_broken = tl.max(((values != values) | (values == float("inf"))).to(tl.int32), 0) > 0
        peak, place = tl.max(values, 0, return_indices=True)
        # A NaN loses every comparison: told as an infinity, it wins them all.
        tl.store(peaks + row * chunks + chunk, tl.where(is_broken, float("inf"), peak))
        tl.store(bests + row * chunks + chunk, chunk * CHUNK + place)
        if is_last(arrived, row, chunks):
            largest, best = _first(peaks, bests, row, chunks, CHUNKS)
            fault = tl.where(largest == float("inf"), _NOT_FINITE, tl.where(largest == -float("inf"), _NOTHING_LEFT, 0))
            tl.store(largest_of_row + row, largest)
            if (tl.load(kinds + slot) == _BEST) | (fault != 0):
                _tell(row, slot, tl.where(fault == 0, best, 0), fault, positions, histories, longest, chosen)
    elif chunk == 0:
        tl.store(chosen + 2 * row, 0)
        tl.store(chosen + 2 * row + 1, 0)


@triton.jit
def _truncate(
    logits, stride, slots, kinds, reals, num_slots, wholes, peaks, chunks, largest_of_row, limits, lasts,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    slot = tl.load(slots + row).to(tl.int64)
    kind = tl.load(kinds + slot, mask=slot >= 0, other=_BEST)
    if (kind == _OF_TOP_K) | (kind == _OF_TOP_P):
        largest = tl.load(largest_of_row + row)
        if _is_finite(largest):
            count = tl.where(kind == _OF_TOP_K, tl.load(wholes + _TOP_K * num_slots + slot), 0)
            temperature = tl.load(reals + _TEMPERATURE * num_slots + slot)
            top_p = tl.load(reals + _TOP_P * num_slots + slot)
            of_row = logits + row.to(tl.int64) * stride
            limit, last = truncated(
                of_row, peaks + row * chunks, chunks, largest, count, top_p, temperature, WIDTH, BLOCK, CHUNK, CHUNKS
            )
            tl.store(limits + row, limit)
            tl.store(lasts + row, last)


@triton.jit(do_not_specialize=["longest"])
def _draw(
    logits, stride, slots, kinds, reals, num_slots, wholes, peaks, largest_of_row, limits, lasts,
    fastest, winners, positions, histories, longest, chosen, arrived,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row, chunk, chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    slot = tl.load(slots + row).to(tl.int64)
    kind = tl.load(kinds + slot, mask=slot >= 0, other=_BEST)
    largest = tl.load(largest_of_row + row, mask=kind != _BEST, other=float("inf"))
    if _is_finite(largest):  # else the token is told already
        temperature = tl.load(reals + _TEMPERATURE * num_slots + slot)
        min_p = tl.load(reals + _MIN_P * num_slots + slot)
        is_cut = (kind == _OF_TOP_K) | (kind == _OF_TOP_P)
        limit = tl.load(limits + row, mask=is_cut, other=-float("inf"))
        last = tl.load(lasts + row, mask=is_cut, other=-1)
        peak = tl.load(peaks + row * chunks + chunk)
        speed, winner = -1.0, 0
        # Random numbers cost most of the time: none are made where a chunk has nothing that may come.
        if (peak >= limit) & (tl.exp((peak - largest) / temperature) >= min_p):
            ids = chunk * CHUNK + tl.arange(0, CHUNK)
            values = tl.load(logits + row.to(tl.int64) * stride + ids, mask=ids < WIDTH, other=-float("inf"))
            weights = tl.exp((values - largest) / temperature)
            is_kept = (values > limit) | ((values == limit) & (ids <= last))
            is_kept &= weights >= min_p
            seed = tl.load(wholes + _SEED * num_slots + slot)
            sample = tl.load(wholes + _SAMPLE * num_slots + slot)
            speeds = weights / exponential(stream(seed, sample, tl.load(positions + row)), ids)
            speed, place = tl.max(tl.where(is_kept, speeds, -1.0), 0, return_indices=True)
            winner = chunk * CHUNK + place
        tl.store(fastest + row * chunks + chunk, speed)
        tl.store(winners + row * chunks + chunk, winner)
        if is_last(arrived, row, chunks):
            _, winner = _first(fastest, winners, row, chunks, CHUNKS)
            _tell(row, slot, winner, 0, positions, histories, longest, chosen)


@triton.jit
def _is_finite(largest):
    return (largest > -float("inf")) & (largest < float("inf"))


@triton.jit
def _first(values, ids, row, chunks, CHUNKS: tl.constexpr):
    """The largest value that a row's chunks have found, and whose it is; of equals the first."""
    indices = tl.arange(0, CHUNKS)
    of_row = tl.load(values + row * chunks + indices, mask=indices < chunks, other=-float("inf"), cache_modifier=".cg")
    value, chunk = tl.max(of_row, 0, return_indices=True)
    return value, tl.load(ids + row * chunks + chunk, cache_modifier=".cg")


@triton.jit
def _tell(row, slot, token, fault, positions, histories, longest, chosen):
    tl.store(chosen + 2 * row, token.to(tl.int64))
    tl.store(chosen + 2 * row + 1, fault)
    position = tl.load(positions + row)
    tl.store(histories + slot * longest + position, token, mask=position < longest)


class _Found(NamedTuple):
    """Scratch memory that each launch leaves for the next, by row and chunk."""

    peaks: Tensor
    bests: Tensor
    fastest: Tensor
    winners: Tensor
    largest: Tensor
    limits: Tensor
    lasts: Tensor

    @classmethod
    def room(cls, rows: int, chunks: int, device: torch.device) -> "_Found":
        """Each is a tensor of its own, so that it begins at a multiple of 16 bytes whatever the number of rows."""
        by_chunk, by_row = (torch.float32, torch.int32) * 2, (torch.float32, torch.float32, torch.int32)
        return cls(
            *(torch.empty(rows, chunks, dtype=dtype, device=device) for dtype in by_chunk),
            *(torch.empty(rows, dtype=dtype, device=device) for dtype in by_row),
        )


@choose_on_device.implement("triton")
def choose(logits: Tensor, draws: DeviceDraws, mask: DeviceMask | None = None) -> Tensor:
    (rows, width), device = logits.shape, logits.device
    blocks = _TUNING.choice((width,))
    chunks = triton.cdiv(width, blocks["CHUNK"])
    found = _Found.room(rows, chunks, device)
    chosen = torch.empty(rows, 2, dtype=torch.int64, device=device)
    of_logits = (logits, logits.stride(0), draws.slots, draws.kinds)
    told = (draws.positions, draws.histories, draws.histories.stride(0), chosen, counters(device))
    masked = (None, None, 0) if mask is None else (mask.lines, mask.bits, mask.bits.stride(0))
    sizes = {"WIDTH": width, "CHUNK": blocks["CHUNK"], "CHUNKS": triton.next_power_of_2(chunks)}
    by_chunk = {**sizes, "num_warps": blocks.num_warps}
    _scan[rows, chunks](
        *of_logits, *masked, found.peaks, found.bests, found.largest, *told, IS_MASKED=mask is not None, **by_chunk
    )
    if draws.are_best:
        return chosen
    of_slots = (draws.reals.contiguous(), len(draws.kinds), draws.wholes.contiguous())
    cut = (found.largest, found.limits, found.lasts)
    of_row = {**sizes, "BLOCK": blocks["BLOCK"], "num_warps": _WARPS_OF_A_ROW}
    _truncate[rows,](*of_logits, *of_slots, found.peaks, chunks, *cut, **of_row)
    _draw[rows, chunks](*of_logits, *of_slots, found.peaks, *cut, found.fastest, found.winners, *told, **by_chunk)
    return chosen
