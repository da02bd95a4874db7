"""One token for each row of logits, in four launches that ask the host for nothing.

`_scan` finds the largest of every chunk of a row; `_truncate` folds them and, for rows that want it, finds what top_k
and top_p leave; `_draw` finds which of that comes first in every chunk; `_fold` takes the first of them. Only
`_truncate` has a program go through a whole row. Sizes of chunks don't depend on the number of rows, so neither do a
row's bits. Knows nothing of penalties and masks.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import choice
from ..reference.race import choose_on_device
from ..sampling_columns import NOT_FINITE, NOTHING_LEFT, Chosen, DeviceDraws
from .chance import exponential, stream
from .compiled import Example
from .truncation import truncated
from .tuning import Choice, Tuning

_BEST = tl.constexpr(choice.BEST)
_OF_TOP_K = tl.constexpr(choice.OF_TOP_K)
_OF_TOP_P = tl.constexpr(choice.OF_TOP_P)
_NOT_FINITE = tl.constexpr(NOT_FINITE)
_NOTHING_LEFT = tl.constexpr(NOTHING_LEFT)

# One choice: sums over chunks and the order of equals must be the same in every process.
_ON_GPU = Choice.of(num_warps=4, CHUNK=2048, BLOCK=8192)
_INTERPRETED = Choice.of(CHUNK=256, BLOCK=512)
_TUNING = Tuning("choose_on_device", lambda architecture, key: _ON_GPU if architecture else _INTERPRETED, [_ON_GPU])
_WARPS_OF_A_ROW = 32  # where one program reads a whole row, so many bytes are on their way at once


@triton.jit
def _scan(logits, stride, peaks, bests, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    row, chunk = tl.program_id(0), tl.program_id(1)
    ids = chunk * CHUNK + tl.arange(0, CHUNK)
    values = tl.load(logits + row.to(tl.int64) * stride + ids, mask=ids < WIDTH, other=-float("inf"))
    is_broken = tl.max(((values != values) | (values == float("inf"))).to(tl.int32), 0) > 0
    peak, place = tl.max(values, 0, return_indices=True)
    slot = row * tl.num_programs(1) + chunk
    # A NaN loses every comparison: told as an infinity, it wins them all.
    tl.store(peaks + slot, tl.where(is_broken, float("inf"), peak))
    tl.store(bests + slot, chunk * CHUNK + place)


@triton.jit
def _truncate(
    logits, stride, rows, kinds, reals, top_k, peaks, bests, chunks,
    largest_of_row, limits, lasts, token_ids, faults, WIDTH: tl.constexpr, CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    places = tl.arange(0, CHUNKS)
    of_row = tl.load(peaks + row * chunks + places, mask=places < chunks, other=-float("inf"))
    largest, chunk = tl.max(of_row, 0, return_indices=True)
    fault = tl.where(largest == float("inf"), _NOT_FINITE, tl.where(largest == -float("inf"), _NOTHING_LEFT, 0))
    best = tl.load(bests + row * chunks + chunk)
    tl.store(largest_of_row + row, largest)
    tl.store(faults + row, fault)
    tl.store(token_ids + row, tl.where(fault == 0, best, 0))
    kind = tl.load(kinds + row)
    limit = -float("inf")
    last = -1
    if ((kind == _OF_TOP_K) | (kind == _OF_TOP_P)) & (fault == 0):
        count = tl.where(kind == _OF_TOP_K, tl.load(top_k + row), 0)
        temperature, top_p = tl.load(reals + row), tl.load(reals + rows + row)
        limit, last = truncated(logits + row.to(tl.int64) * stride, largest, count, top_p, temperature, WIDTH, BLOCK)
    tl.store(limits + row, limit)
    tl.store(lasts + row, last)


@triton.jit
def _draw(
    logits, stride, rows, kinds, reals, wholes, positions, peaks, largest_of_row, limits, lasts,
    fastest, winners, WIDTH: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row, chunk = tl.program_id(0), tl.program_id(1)
    slot = row * tl.num_programs(1) + chunk
    temperature, min_p = tl.load(reals + row), tl.load(reals + 2 * rows + row)
    largest, limit = tl.load(largest_of_row + row), tl.load(limits + row)
    peak = tl.load(peaks + slot)
    speed, winner = -1.0, 0
    # Random numbers cost most of the time: none are made where a chunk has nothing that may come.
    may_come = (peak >= limit) & (tl.exp((peak - largest) / temperature) >= min_p)
    if (tl.load(kinds + row) != _BEST) & may_come:
        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        values = tl.load(logits + row.to(tl.int64) * stride + ids, mask=ids < WIDTH, other=-float("inf"))
        weights = tl.exp((values - largest) / temperature)
        is_kept = (values > limit) | ((values == limit) & (ids <= tl.load(lasts + row)))
        is_kept &= weights >= min_p
        seed, sample = tl.load(wholes + rows + row), tl.load(wholes + 2 * rows + row)
        speeds = weights / exponential(stream(seed, sample, tl.load(positions + row)), ids)
        speed, place = tl.max(tl.where(is_kept, speeds, -1.0), 0, return_indices=True)
        winner = chunk * CHUNK + place
    tl.store(fastest + slot, speed)
    tl.store(winners + slot, winner)


@triton.jit
def _fold(kinds, fastest, winners, chunks, faults, token_ids, CHUNKS: tl.constexpr):
    row = tl.program_id(0)
    if (tl.load(kinds + row) != _BEST) & (tl.load(faults + row) == 0):
        places = tl.arange(0, CHUNKS)
        of_row = tl.load(fastest + row * chunks + places, mask=places < chunks, other=-1.0)
        _, chunk = tl.max(of_row, 0, return_indices=True)
        tl.store(token_ids + row, tl.load(winners + row * chunks + chunk))


@choose_on_device.implement("triton")
def choose(logits: Tensor, draws: DeviceDraws) -> Chosen:
    rows, width = logits.shape
    blocks = _TUNING.choice((width,))
    chunks = triton.cdiv(width, blocks["CHUNK"])
    rounded = triton.next_power_of_2(chunks)

    def numbers(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=logits.device)

    chosen = Chosen(numbers(torch.int64, rows), numbers(torch.int64, rows))
    peaks, fastest = numbers(torch.float32, 2, rows, chunks)
    bests, winners = numbers(torch.int32, 2, rows, chunks)
    largest, limits = numbers(torch.float32, 2, rows)
    lasts = numbers(torch.int32, rows)
    kinds, reals, wholes = draws.kinds, draws.reals.contiguous(), draws.wholes.contiguous()
    of_logits = (logits, logits.stride(0))
    by_chunk = {"WIDTH": width, "CHUNK": blocks["CHUNK"], "num_warps": blocks.num_warps}
    _scan[rows, chunks](*of_logits, peaks, bests, **by_chunk)
    _truncate[rows,](
        *of_logits, rows, kinds, reals, wholes, peaks, bests, chunks, largest, limits, lasts, *chosen,
        WIDTH=width, CHUNKS=rounded, BLOCK=blocks["BLOCK"], num_warps=_WARPS_OF_A_ROW,
    )  # fmt: skip
    _draw[rows, chunks](
        *of_logits, rows, kinds, reals, wholes, draws.positions, peaks, largest, limits, lasts, fastest, winners,
        **by_chunk,
    )  # fmt: skip
    _fold[rows,](kinds, fastest, winners, chunks, chosen.faults, chosen.token_ids, CHUNKS=rounded, num_warps=1)
    return chosen


def examples() -> Iterator[Example]:
    """A vocabulary of 152k."""
    logits = {"logits": "*fp32", "stride": "i32"}
    scanned = {"peaks": "*fp32", "bests": "*i32"}
    columns = {"rows": "i32", "kinds": "*i32", "reals": "*fp32"}
    found = {"largest_of_row": "*fp32", "limits": "*fp32", "lasts": "*i32"}
    chosen = {"token_ids": "*i64", "faults": "*i64"}
    drawn = {"fastest": "*fp32", "winners": "*i32"}
    chunk, rounded = {"WIDTH": 151936, "CHUNK": _ON_GPU["CHUNK"]}, {"CHUNKS": 128}
    aligned = ("logits", "stride")
    yield Example("scan", _scan, logits | scanned, chunk, aligned=aligned)
    of_truncate = logits | columns | {"top_k": "*i64", "chunks": "i32"} | scanned | found | chosen
    of_row = {**rounded, "WIDTH": 151936, "BLOCK": _ON_GPU["BLOCK"]}
    yield Example("truncate", _truncate, of_truncate, of_row, num_warps=_WARPS_OF_A_ROW, aligned=aligned)
    of_draw = logits | columns | {"wholes": "*i64", "positions": "*i64", "peaks": "*fp32"} | found | drawn
    yield Example("draw", _draw, of_draw, chunk, aligned=aligned)
    of_fold = {"kinds": "*i32", "chunks": "i32"} | drawn | chosen
    yield Example("fold", _fold, of_fold, rounded, num_warps=1)
