"""How a step's attention is divided: queries into tiles, contexts into splits, and keys into a program's steps.

The sizes of blocks have been compiled, but not timed.
"""

from functools import partial
from typing import NamedTuple

from ...paged import KV_DTYPES, DeviceRows
from ..launch.tuning import Key, LaunchConfig, Tuning, multiprocessors

# Tokens of the shortest split, powers of 2: in the invariant form two steps, so that the second one's keys are loaded
# while the first is computed; elsewhere one step, if that gives idle multiprocessors work.
SPLIT, _ONE_STEP, _LONGEST_OF_SHORTEST = 128, 64, 1024
_USUAL_CONTEXT = 2048  # gets two programs on each multiprocessor, if splits can be that short
_SPLITS_AT_MOST = 128  # of one tile, since the last program adds them all up
# A step has few queries, and splits contexts, if a tile has at most so many rows (queries × heads per key head).
FEW_ROWS = {"fp32": 16, "fp16": 32, "bf16": 32, "int8": 32}
SPLITS_OF_MANY = 8
LEAST_ROWS = LEAST_KEYS = 16  # of any `tl.dot`


class Tiles(NamedTuple):
    """How the queries of some rows are cut into tiles, and their contexts into splits."""

    positions: int
    group: int  # query heads in a tile: those that share a key head, padded
    least_queries: int  # of the rows that these tiles are for
    most_queries: int
    splits_at_most: int = 1
    split: int = SPLIT  # tokens of the shortest split
    is_split: bool = False  # whether each split has a program of its own
    adds_splits: bool = False  # whether a program that has all splits adds them up as if each had its own

    @property
    def a_row(self) -> int:
        """Tiles of every row; 0 if a row may need more than two, so that programs search for their row."""
        most = 1 if self.most_queries == 1 else (self.most_queries - 2) // self.positions + 2
        return most if most <= 2 else 0

    def count(self, rows: DeviceRows) -> int:
        """The number of tiles: a row of n queries, wherever it begins, has at most n / positions + 2."""
        return rows.num_rows * self.a_row or len(rows.kv_slots) // self.positions + 2 * rows.num_rows

    def unsplit(self) -> "Tiles":
        """Return the same tiles, each with one program for the whole context."""
        return self._replace(is_split=False, splits_at_most=self.splits_at_most if self.adds_splits else 1)

    def num_splits(self, rows: DeviceRows, window: int | None) -> int:
        """The most splits of a tile. A window has one more, since it may begin and end within a split."""
        end = -(-rows.max_context // self.positions) * self.positions
        return min(self.splits_at_most + bool(window), -(-end // self.split)) if self.is_split else 1


def most_splits(num_heads: int) -> int:
    """Return the most splits of a tile, a power of 2: a row alone then has two programs on each multiprocessor. Depends
    on the card, never on other rows."""
    wanted = 2 * multiprocessors() // num_heads
    return min(1 << max(wanted, 1).bit_length() - 1, _SPLITS_AT_MOST)


def few_programs() -> int:
    """Return the number of programs up to which many queries leave a device idle, so that contexts are split, too."""
    return multiprocessors() // 2


def tiles_of_few(kind: str, shared: int, most_queries: int, rows: DeviceRows, num_heads: int) -> Tiles | None:
    """Return tiles that hold all queries of a row in one or two; None if there are too many. `shared` is a power of 2.

    With few rows splits are short, for many programs; with many rows they are longer, since every program has a cost.
    """
    positions = 1 << (most_queries - 1).bit_length()
    group = max(shared, LEAST_ROWS // positions)
    is_few = positions == 1 or positions * group <= FEW_ROWS[kind]
    each = _USUAL_CONTEXT * rows.num_rows * num_heads // (2 * multiprocessors())
    split = min(max(1 << max(each, 1).bit_length() - 1, _ONE_STEP), _LONGEST_OF_SHORTEST)
    return Tiles(positions, group, 1, most_queries, most_splits(num_heads), split, is_split=True) if is_few else None


def tiles_of_many(shared: int, num_rows: int, least_queries: int, rows: DeviceRows, num_heads: int) -> Tiles:
    tiles = Tiles(max(1, num_rows // shared), shared, least_queries, rows.max_queries)
    is_idle = tiles.count(rows) * num_heads <= few_programs()
    return tiles._replace(splits_at_most=SPLITS_OF_MANY, is_split=True) if is_idle else tiles


def tiles_of_invariant(kind: str, shared: int, num_rows: int, rows: DeviceRows, num_heads: int) -> list[Tiles]:
    """Return tiles of one size with one order of sums. Splits are computed side by side for rows of one query, and for
    others if their tiles are few."""
    positions = max(1, num_rows // shared)
    tiles = Tiles(positions, shared, 1, rows.max_queries, most_splits(num_heads), adds_splits=True)
    if rows.max_queries * shared <= FEW_ROWS[kind]:
        return [tiles._replace(is_split=True)]
    others = tiles._replace(is_split=tiles.count(rows) * num_heads <= few_programs())
    if rows.num_rows == 1 or not rows.may_have_answers:
        return [others]
    return [tiles._replace(most_queries=1, is_split=True), others._replace(least_queries=2)]


class ProgramShape(NamedTuple):
    """What one program does at a time."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int

    @property
    def choice(self) -> LaunchConfig:
        return LaunchConfig.of(self.num_warps, self.num_stages, ROWS=self.rows, KEYS=self.keys)


# The fewest stages at which the compiled loop loads both keys and values during the step before, since the block table
# takes two of them.
_BOTH_AHEAD = 5
_KEYS = {"fp32": 32, "fp16": 64, "bf16": 64, "int8": 64}  # of a step, at most
_BYTES_OF_A_STEP = 32 << 10  # of keys and values: two steps fit into the least shared memory, that of 89
_FP32_WARPS = 8  # no tensor cores: a thread multiplies whole rows and keys, too many for registers with 4 warps
_INTERPRETED = ProgramShape(16, 128, 4, 2)  # few rows, so that small tests have many tiles
# For many queries, by the first architecture that uses the entry: for head dimensions up to 128, and above.
_MANY = {
    "fp32": {80: (ProgramShape(16, 32, _FP32_WARPS, _BOTH_AHEAD), ProgramShape(16, 16, _FP32_WARPS, _BOTH_AHEAD))},
    "16 bits": {
        80: (ProgramShape(128, 32, 8, _BOTH_AHEAD), ProgramShape(64, 32, 8, 2)),
        90: (ProgramShape(128, 64, 8, 3), ProgramShape(128, 32, 8, 2)),
        100: (ProgramShape(128, 64, 8, 3), ProgramShape(32, 32, 4, _BOTH_AHEAD)),
    },
    "int8": {
        80: (ProgramShape(64, 64, 8, _BOTH_AHEAD), ProgramShape(32, 64, 8, _BOTH_AHEAD)),
        90: (ProgramShape(128, 64, 8, _BOTH_AHEAD), ProgramShape(32, 64, 8, _BOTH_AHEAD)),
        100: (ProgramShape(32, 64, 4, _BOTH_AHEAD), ProgramShape(32, 64, 8, _BOTH_AHEAD)),
    },
}
_MANY_TRIED = {
    "fp32": [
        ProgramShape(16, 16, 8, _BOTH_AHEAD),
        ProgramShape(16, 32, 8, _BOTH_AHEAD),
        ProgramShape(16, 32, 4, _BOTH_AHEAD),
    ],
    "16 bits": [
        *(ProgramShape(64, 64, 4, stages) for stages in (2, 3, 5)),
        *(ProgramShape(128, 64, 8, stages) for stages in (2, 3, 5)),
        ProgramShape(128, 32, 8, _BOTH_AHEAD),
        ProgramShape(128, 128, 8, 3),
    ],
    "int8": [
        ProgramShape(32, 64, 4, _BOTH_AHEAD),
        ProgramShape(32, 64, 8, _BOTH_AHEAD),
        ProgramShape(64, 64, 4, _BOTH_AHEAD),
        ProgramShape(64, 64, 8, _BOTH_AHEAD),
        ProgramShape(128, 64, 8, _BOTH_AHEAD),
    ],
}


def _keys(kind: str, head_dim: int) -> int:
    """The keys of a step, so that the next one's keys and values may be on their way meanwhile."""
    of_a_key = 2 * (1 << (head_dim - 1).bit_length()) * KV_DTYPES[kind].itemsize
    return min(_KEYS[kind], max(_BYTES_OF_A_STEP // of_a_key, LEAST_KEYS))


def _few(kind: str, architecture: int, key: Key) -> LaunchConfig:
    if not architecture:
        return _INTERPRETED.choice
    head_dim, num_rows = key
    is_large = head_dim > 128 and (num_rows > LEAST_ROWS or kind == "int8")
    warps = _FP32_WARPS if kind == "fp32" else 8 if is_large else 4
    return LaunchConfig.of(warps, _BOTH_AHEAD, KEYS=_keys(kind, head_dim))


def _many(kind: str, architecture: int, key: Key) -> LaunchConfig:
    if not architecture:
        return _INTERPRETED.choice
    head_dim, _ = key
    table = _MANY.get(kind, _MANY["16 bits"])
    step = table[max((since for since in table if since <= architecture), default=80)][head_dim > 128]
    # If a tile has no more columns than rows, tensor cores give each warp sixteen rows, and more warps repeat them.
    repeats = kind != "fp32" and head_dim <= step.rows
    useful = step.rows // LEAST_ROWS if repeats else step.num_warps
    return step._replace(num_warps=min(step.num_warps, useful)).choice


def _invariant(kind: str, architecture: int, key: Key) -> LaunchConfig:
    """One choice for each format and head dimension, whatever the card.

    Two sums of values need registers. If a tile has fewer rows than keys and columns, the compiler divides its columns
    among the warps, otherwise its rows, sixteen for each warp; then warps beyond these repeat what others do.
    """
    (head_dim,) = key
    rows = 32 if 32 < head_dim <= 128 and kind != "fp32" else LEAST_ROWS
    warps = _FP32_WARPS if kind == "fp32" else 8 if kind == "int8" and head_dim > 32 else 4
    return ProgramShape(rows, _keys(kind, head_dim), warps, _BOTH_AHEAD).choice


def _few_tried(kind: str) -> list[LaunchConfig]:
    keys = _KEYS[kind]
    steps = [(4, 3, keys), (4, 2, keys), (8, 3, keys), (4, _BOTH_AHEAD, keys), (8, _BOTH_AHEAD, keys), (4, 3, 2 * keys)]
    if kind != "int8":
        steps.append((_FP32_WARPS if kind == "fp32" else 4, _BOTH_AHEAD, keys // 2))
    return [LaunchConfig.of(warps, stages, KEYS=tried) for warps, stages, tried in steps]


# By format. A key is the head dimension, then the tile's rows (few queries) or `shared` (many).
FEW = {kind: Tuning(f"attention_few_{kind}", partial(_few, kind), _few_tried(kind)) for kind in _KEYS}
MANY = {
    kind: Tuning(
        f"attention_many_{kind}",
        partial(_many, kind),
        [step.choice for step in _MANY_TRIED.get(kind, _MANY_TRIED["16 bits"])],
    )
    for kind in _KEYS
}
INVARIANT = {kind: Tuning(f"attention_invariant_{kind}", partial(_invariant, kind), []) for kind in _KEYS}
# Whether a library attends to prompts, if there is one; keys are those of many queries.
OURS, LIBRARY = LaunchConfig.of(LIBRARY=0), LaunchConfig.of(LIBRARY=1)
PROMPTS = {kind: Tuning(f"attention_prompts_{kind}", lambda architecture, key: OURS, [OURS, LIBRARY]) for kind in _KEYS}
