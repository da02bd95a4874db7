"""The splits of a tile's context: each program stores its own, and the program that finishes last adds them up.

Splits are added in ascending order, whichever program is last, just as `tile.attend_split_by_split` adds them.
"""

import triton
import triton.language as tl

from .tile import added, nothing, with_sinks

# Numbers of one tile that are added at once, and numbers of all splits that are loaded ahead: few enough that the last
# program needs no more registers than attention itself.
_NUMBERS_AT_ONCE = tl.constexpr(2048)
_NUMBERS_AHEAD = tl.constexpr(8192)


@triton.jit
def store_rows(to, x, numbers, is_there, HEAD_DIM: tl.constexpr):
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    mask = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    tl.store(to + numbers.to(tl.int64)[:, None] * HEAD_DIM + columns[None, :], x.to(to.dtype.element_ty), mask=mask)


@triton.jit
def store_split(parts, sums, offsets, is_there, weighted, highest, total, HEAD_DIM: tl.constexpr):
    store_rows(parts, weighted, offsets, is_there, HEAD_DIM)
    tl.store(sums + offsets * 2, highest, mask=is_there)
    tl.store(sums + offsets * 2 + 1, total, mask=is_there)


@triton.jit
def _stored_split(parts, sums, offsets, is_there, columns, HEAD_DIM: tl.constexpr):
    """Load some columns of a split, bypassing the L1 cache; a softmax over no keys where there is no split."""
    mask = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    weighted = tl.load(parts + offsets[:, None] * HEAD_DIM + columns[None, :], mask=mask, other=0, cache_modifier=".cg")
    highest = tl.load(sums + offsets * 2, mask=is_there, other=float("-inf"), cache_modifier=".cg")
    return weighted, highest, tl.load(sums + offsets * 2 + 1, mask=is_there, other=0, cache_modifier=".cg")


@triton.jit
def _added(parts, sums, offsets, is_there, count, columns, HEAD_DIM: tl.constexpr):
    """Add up some columns of the softmax over `count` splits; `offsets` are those of the first."""
    ROWS: tl.constexpr = offsets.shape[0]
    AT_ONCE: tl.constexpr = max(1, _NUMBERS_AHEAD // (ROWS * columns.shape[0]))
    weighted, highest, total = nothing(ROWS, columns.shape[0])
    for split in range(0, count, AT_ONCE):
        stored = (_stored_split(parts, sums, offsets + split, is_there, columns, HEAD_DIM),)
        for ahead in tl.static_range(1, AT_ONCE):
            is_stored = is_there & (split + ahead < count)
            next_split = (_stored_split(parts, sums, offsets + split + ahead, is_stored, columns, HEAD_DIM),)
            stored = stored + next_split  # type: ignore[assignment]
        for ahead in tl.static_range(AT_ONCE):
            more, more_highest, more_total = stored[ahead]
            weighted, highest, total = added(weighted, highest, total, more, more_highest, more_total)
    return weighted, highest, total


@triton.jit
def add_splits(
    output, heads, parts, sums, offsets, is_there, count, sinks, members, HEAD_DIM: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """Write the output from `count` splits; `members` are the numbers of the rows' heads."""
    ALL: tl.constexpr = triton.next_power_of_2(HEAD_DIM)
    COLUMNS: tl.constexpr = max(16, min(ALL, _NUMBERS_AT_ONCE // offsets.shape[0]))
    for piece in range(ALL // COLUMNS):
        columns = piece * COLUMNS + tl.arange(0, COLUMNS)
        weighted, highest, total = _added(parts, sums, offsets, is_there, count, columns, HEAD_DIM)
        if HAS_SINKS:
            weighted, highest, total = with_sinks(weighted, highest, total, sinks, members, is_there)
        attended = (weighted / tl.where(is_there, total, 1.0)[:, None]).to(output.dtype.element_ty)
        mask = is_there[:, None] & (columns < HEAD_DIM)[None, :]
        tl.store(output + heads.to(tl.int64)[:, None] * HEAD_DIM + columns[None, :], attended, mask=mask)
