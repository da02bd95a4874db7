"""How a step's attention is cut up: queries into tiles, contexts into splits, and how large a step of a program is.

What the sizes of blocks cost a multiprocessor is known from compilation alone (`compiled.py`): none spills a register.
Knows nothing of how attention is computed.
"""

from typing import NamedTuple

from ..kv_layout import KV_FORMATS
from ..paged import DeviceRows, PagedKV
from .tuning import Choice, Key, Tuning

# Tokens of the shortest stretch that a context is split into; a multiple of every number of keys that a step takes.
SPLIT = 256
# Programs of one tile and head, at most: partial sums take memory in proportion.
SPLITS_AT_MOST = 32
# Rows of a tile (queries × heads that share a key head) up to which a step has few queries, and contexts are split.
FEW_ROWS = 32
# Programs up to which a step of many queries leaves a device idle, so that its contexts are split too.
FEW_PROGRAMS = 64
SPLITS_OF_MANY = 8
LEAST_ROWS = 16  # of any product


class Tiles(NamedTuple):
    """How queries are cut into tiles, and contexts into splits."""

    positions: int
    group: int  # query heads in a tile: those that share a key head, and some that are not there
    splits_at_most: int = 1
    is_split: bool = False  # whether each split has a program of its own
    adds_splits: bool = False  # whether a program that has them all adds them up as if it had not

    def a_row(self, rows: DeviceRows) -> int:
        """Tiles that every row has; 0 where that would be many more than are needed, and rows are searched for."""
        most = 1 if rows.max_queries == 1 else (rows.max_queries - 2) // self.positions + 2
        return most if most <= 2 else 0

    def count(self, rows: DeviceRows) -> int:
        """A row of n queries, wherever it begins, has n / positions + 2 tiles at most."""
        return rows.num_rows * self.a_row(rows) or len(rows.kv_slots) // self.positions + 2 * rows.num_rows

    def num_splits(self, rows: DeviceRows) -> int:
        end = -(-rows.max_context // self.positions) * self.positions
        return min(self.splits_at_most, -(-end // SPLIT)) if self.is_split else 1


def tiles_of_few(shared: int, max_queries: int) -> Tiles | None:
    """One tile for all queries of a row, or two; none where there are too many. `shared` is a power of 2."""
    positions = 1 << (max_queries - 1).bit_length()
    group = max(shared, LEAST_ROWS // positions)
    is_few = positions == 1 or positions * group <= FEW_ROWS
    return Tiles(positions, group, SPLITS_AT_MOST, is_split=True) if is_few else None


def tiles_of_many(shared: int, num_rows: int, rows: DeviceRows, num_heads: int) -> Tiles:
    tiles = Tiles(max(1, num_rows // shared), shared)
    is_idle = tiles.count(rows) * num_heads <= FEW_PROGRAMS
    return tiles._replace(splits_at_most=SPLITS_OF_MANY, is_split=True) if is_idle else tiles


def tiles_of_invariant(shared: int, num_rows: int, max_queries: int) -> Tiles:
    """One tile and one order of sums for every step; only who computes a split depends on the number of queries."""
    positions = max(1, num_rows // shared)
    return Tiles(positions, shared, SPLITS_AT_MOST, is_split=max_queries * shared <= FEW_ROWS, adds_splits=True)


def shape_key(kv: PagedKV, num_rows: int) -> Key:
    """`num_rows` of a tile, where the step decides; else 0."""
    return KV_FORMATS[kv.kind].number, kv.head_dim, num_rows


_KINDS = list(KV_FORMATS)
# A product over keys or tokens takes 16 at once at least, and there is one for each place in a word.
_KEYS = {"fp32": 32, "fp16": 64, "bf16": 64, "int8": 64, "uint4": 128}
# By format, for head dimensions up to 128 and beyond: rows, keys, warps, stages.
_MANY = {
    "fp32": ((16, 32, 4, 2), (16, 32, 4, 2)),
    "fp16": ((128, 64, 8, 3), (128, 32, 8, 2)),
    "bf16": ((128, 64, 8, 3), (128, 32, 8, 2)),
    "int8": ((128, 64, 8, 3), (32, 64, 8, 2)),
    "uint4": ((32, 128, 8, 2), (16, 128, 4, 2)),
}
_INVARIANT_ROWS = {"fp32": (16, 16), "fp16": (32, 16), "bf16": (32, 16), "int8": (32, 16), "uint4": (16, 16)}


def _few(architecture: int, key: Key) -> Choice:
    number, head_dim, num_rows = key
    kind = _KINDS[number]
    is_tight = num_rows > LEAST_ROWS and (kind == "uint4" or head_dim > 128)
    return Choice.of(8 if is_tight else 4, 2 if head_dim > 128 else 3, KEYS=_KEYS[kind])


def _many(architecture: int, key: Key) -> Choice:
    number, head_dim, _ = key
    num_rows, keys, num_warps, num_stages = _MANY[_KINDS[number]][head_dim > 128]
    if not architecture:
        num_rows = LEAST_ROWS
    return Choice.of(num_warps, num_stages, ROWS=num_rows, KEYS=keys)


def _invariant(architecture: int, key: Key) -> Choice:
    number, head_dim, _ = key
    kind = _KINDS[number]
    return Choice.of(4, 2, ROWS=_INVARIANT_ROWS[kind][head_dim > 128], KEYS=_KEYS[kind])


FEW = Tuning("attention_few", _few, [])
MANY = Tuning("attention_many", _many, [])
INVARIANT = Tuning("attention_invariant", _invariant, [])
