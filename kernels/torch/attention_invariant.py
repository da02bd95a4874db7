"""Attention whose bits for a query depend on that query and its row's stored keys and values alone.

A row's context is cut at absolute positions: queries into tiles of TILE, keys into splits of SPLIT. A query always
sits at position % TILE of its tile, whatever else the step computes, and every product, sum and exponential runs on
tiles of one fixed shape; the splits are folded in ascending order. How a prompt was chunked, which rows came along
and how many threads there are then changes nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..reference.attention import attention_invariant, capped
from ..rows import HostRows
from .paging import block_rows, kept_rows, on_device

TILE = 8
# A multiple of every block size.
SPLIT = 128
# Below every score; finite, so that the difference of two is a number.
_LOWEST = -3e38


class Geometry(NamedTuple):
    """What all tiles of a step have in common."""

    num_heads: int  # of keys and values
    shared: int  # query heads to each of them
    block_size: int
    window: int | None


@dataclass
class Split:
    """One stretch of SPLIT absolute positions, and the tiles that look at it."""

    tiles: Tensor  # [A] int64
    gather: Tensor  # [A × heads × blocks] int64: rows of the memory seen as [num_blocks × heads, block_size × head_dim]
    hidden: Tensor  # [A, 1, TILE × shared, SPLIT]: True where a query does not see a key
    unwritten: Tensor  # rows of the gathered values, as [A × heads × SPLIT, head_dim], where nothing of a row lies


@dataclass
class QueryTiles:
    """A step's queries in their tiles, and the splits in ascending order."""

    num_tiles: int
    tile_slots: Tensor  # [T] int64: tile × TILE + position % TILE of each token
    splits: list[Split]


@attention_invariant.implement("torch")
def attention_by_tile_and_split(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: HostRows,
    scale: float,
    window: int | None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    num_query_heads, head_dim = query.shape[1:]
    num_heads = keys.shape[1]
    shared = num_query_heads // num_heads
    key = ("tiles", window, shared, keys.shape[1:])
    plan = rows.plan(key, lambda: _tiles(rows, Geometry(num_heads, shared, keys.shape[2], window)))

    tiled = query.new_zeros(plan.num_tiles * TILE, num_query_heads, head_dim)
    tiled.index_copy_(0, plan.tile_slots, query * scale)
    # [tiles, heads, TILE × shared, head_dim]: the query heads that share a key head stand under one another.
    tiled = tiled.view(-1, TILE, num_heads, shared, head_dim).transpose(1, 2).flatten(2, 3)
    weighted = torch.zeros_like(tiled)
    highest = tiled.new_full((*tiled.shape[:-1], 1), _LOWEST)
    total = torch.zeros_like(highest)
    if sinks is not None:  # each is the first score that is seen, of a value that is 0
        highest.copy_(sinks.view(num_heads, 1, shared, 1).expand(-1, TILE, -1, -1).flatten(1, 2))
        total.fill_(1)
    for split in plan.splits:
        _fold(split, tiled, keys, values, weighted, highest, total, softcap)
    attended = (weighted / total).view(-1, num_heads, TILE, shared, head_dim).transpose(1, 2)
    return attended.reshape(-1, num_query_heads, head_dim).index_select(0, plan.tile_slots)


def _fold(
    split: Split,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    weighted: Tensor,
    highest: Tensor,
    total: Tensor,
    softcap: float | None,
) -> None:
    """Fold one split into the running maximum, the sum of exponentials and the weighted sum of values."""
    _, num_heads, _, head_dim = query.shape
    width = keys.shape[2] * head_dim
    shape = (len(split.tiles), num_heads, SPLIT, head_dim)
    key = keys.view(-1, width).index_select(0, split.gather).view(shape).to(query.dtype)
    value = values.view(-1, width).index_select(0, split.gather)
    # An unwritten slot may hold another request's NaN, which a weight of zero would let through.
    value.view(-1, head_dim).index_fill_(0, split.unwritten, 0)
    value = value.view(shape).to(query.dtype)

    scores = capped(torch.matmul(query.index_select(0, split.tiles), key.transpose(-1, -2)), softcap)
    scores.masked_fill_(split.hidden, -torch.inf)
    before = highest.index_select(0, split.tiles)
    now = torch.maximum(before, scores.amax(-1, keepdim=True))
    weights = (scores - now).exp_()
    fade = (before - now).exp_()
    highest.index_copy_(0, split.tiles, now)
    total.index_copy_(0, split.tiles, total.index_select(0, split.tiles) * fade + weights.sum(-1, keepdim=True))
    part = torch.matmul(weights, value)
    weighted.index_copy_(0, split.tiles, (weighted.index_select(0, split.tiles) * fade).add_(part))


def _tiles(rows: HostRows, geometry: Geometry) -> QueryTiles:
    owners: list[int] = []  # the row of each tile
    starts: list[int] = []  # the absolute position of its first query
    tile_slots: list[int] = []
    for row, context in enumerate(rows.context_lengths):
        first = context - rows.num_queries(row)
        # The row's tile t of its whole context is number `base + t` of the step.
        base = len(owners) - first // TILE
        tile_slots += [base * TILE + position for position in range(first, context)]
        for tile in range(first // TILE, (context - 1) // TILE + 1):
            owners.append(row)
            starts.append(tile * TILE)
    splits = []
    # [tiles, TILE]: the end of the keys that each query sees; of a tile's spare queries nobody reads what they see.
    ends = torch.tensor(starts)[:, None] + torch.arange(1, TILE + 1)
    if rows.seen_ends is not None:
        ends.view(-1)[torch.tensor(tile_slots)] = rows.seen_ends
    stretches = list(zip(starts, ends.amax(1).tolist(), strict=True))
    for number in range(int(ends.max() - 1) // SPLIT + 1):
        looking = [tile for tile, stretch in enumerate(stretches) if _looks_at(*stretch, number, geometry.window)]
        if looking:
            splits.append(_split(number, looking, owners, starts, ends, rows, geometry))
    return QueryTiles(len(owners), on_device(torch.tensor(tile_slots), rows.block_tables.device), splits)


def _looks_at(start: int, end: int, number: int, window: int | None) -> bool:
    """Whether any query of the tile at `start` sees a key of the split, by their positions alone."""
    return end > number * SPLIT and (window is None or (number + 1) * SPLIT > start - window + 1)


def _split(
    number: int,
    looking: list[int],
    owners: list[int],
    starts: list[int],
    seen_ends: Tensor,
    rows: HostRows,
    geometry: Geometry,
) -> Split:
    device = rows.block_tables.device
    if len(looking) * geometry.num_heads == 1:
        looking = looking * 2  # torch cuts a lone product over threads; its double computes the same bits twice
    owned = torch.tensor([owners[tile] for tile in looking])
    ends = torch.tensor([rows.context_lengths[owners[tile]] for tile in looking])
    key = torch.arange(number * SPLIT, (number + 1) * SPLIT)
    query = torch.tensor([starts[tile] for tile in looking])[:, None] + torch.arange(TILE)
    hidden = key >= seen_ends[looking][:, :, None]
    if geometry.window is not None:
        hidden |= key <= query[:, :, None] - geometry.window
    blocks = SPLIT // geometry.block_size
    start_blocks = torch.full((len(looking),), number * blocks)
    tables = rows.block_tables.index_select(0, on_device(owned, device))
    return Split(
        tiles=on_device(torch.tensor(looking), device),
        gather=block_rows(tables, on_device(start_blocks, device), blocks, geometry.num_heads),
        hidden=on_device(hidden.repeat_interleave(geometry.shared, 1)[:, None], device),
        unwritten=on_device(kept_rows(key >= ends[:, None], SPLIT, geometry.num_heads), device),
    )
