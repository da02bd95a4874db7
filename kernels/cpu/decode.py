"""Fast path for pure decode steps: each row feeds its last token and samples one, without the interpreter.

`Slots` and `GroupTables` tell the kernels where a table of slots keeps its columns; a `Decode` is the memory and the
calls of such steps for one recorded program.
"""

from collections.abc import Sequence
from ctypes import addressof, c_int64, string_at
from functools import partial
from typing import Protocol

import numpy

from ..arrays import Array, address
from ..sampling import BLOCK
from .library import Library, struct_of
from .structs import BeginDecode, ChooseTokens, DecodeGroup, DrawColumns, GroupTables, KeepTokens, Logits, Slots, Step

_INT = 4  # bytes of an entry in a plan's column


class Changes(Protocol):
    """The columns of a plan that concern one group of layers, int32 as they came."""

    block_ids: bytes
    block_offsets: bytes
    starts: bytes


class Decode:
    """The calls around a recorded step of up to `capacity` rows: `begin`, then the step itself, `choose` and `keep`."""

    def __init__(
        self,
        library: Library,
        steps: Sequence[Step],
        groups: Sequence[GroupTables],
        slots: Slots,
        columns: DrawColumns,
        logits: Array,
    ) -> None:
        """Steps and tables are those of each group of layers, and `slots` is told here where the tables are.
        `logits` are those that the recorded step writes: [capacity, vocabulary].
        """
        memory = _memory(slots.num_slots, *logits.shape)
        of_groups = [_memory_of_group(group, len(logits)) for group in groups]
        tables = (GroupTables * len(groups))(*groups)
        changes = (DecodeGroup * len(groups))(
            *(
                struct_of(DecodeGroup, step=addressof(step), **columns)
                for step, columns in zip(steps, of_groups, strict=True)
            )
        )
        slots.num_groups, slots.groups = len(groups), addressof(tables)
        self._changes = list(changes)  # its own elements, not copies
        self._held = (steps, tables, slots, logits, memory, of_groups, changes)  # what is pointed to
        self._is_begun, self._num_faults = c_int64(), c_int64()
        self._token_ids, self._is_finite = memory["token_ids"], memory["is_finite"]
        at = {name: address(own) for name, own in memory.items()}
        self._sampled = at["sampled"]
        shared = {"step": addressof(steps[0]), "row_slots": at["row_slots"]}
        self._plan = BeginDecode(
            slots=addressof(slots),
            groups=addressof(changes),
            capacity=len(logits),
            row_slots=at["row_slots"],
            token_ids=at["computed"],
            is_begun=addressof(self._is_begun),
            **{name: at[name] for name in _STEP_COLUMNS},
        )
        self._choice = ChooseTokens(
            logits=struct_of(Logits, logits, 0, logits.shape[1], at["maxima"]),
            columns=columns,
            num_faults=addressof(self._num_faults),
            **{name: at[name] for name in _CHOICE_COLUMNS},
            **shared,
        )
        self._kept = KeepTokens(slots=addressof(slots), token_ids=at["token_ids"], sampled=at["sampled"], **shared)
        self._begin, self._choose, self._keep = (
            partial(library.function(f"penstock_{name}"), addressof(arguments))
            for name, arguments in (
                ("begin_decode", self._plan),
                ("choose_tokens", self._choice),
                ("keep_tokens", self._kept),
            )
        )

    def begin(self, slots: bytes, num_tokens: bytes, groups: Sequence[Changes], num_rotations: int) -> bool:
        """Take a plan's columns over into the slots and the steps; False, and nothing has changed, if a row is not
        plain or a rule is broken. `groups` are as many as there are tables.
        """
        plan = self._plan
        plan.rows, plan.num_rows = slots, len(slots) // _INT
        plan.num_tokens, plan.num_counts = num_tokens, len(num_tokens) // _INT
        plan.num_rotations = num_rotations
        for group, changes in zip(self._changes, groups):
            group.block_ids, group.num_block_ids = changes.block_ids, len(changes.block_ids) // _INT
            group.block_offsets, group.num_offsets = changes.block_offsets, len(changes.block_offsets) // _INT
            if changes.starts or group.num_starts:
                group.starts, group.num_starts = changes.starts, len(changes.starts) // _INT
        self._begin()
        return bool(self._is_begun.value)

    def choose(self) -> list[int]:
        """A token for every row; the rows whose logits are not finite numbers get token 0 and are returned."""
        self._choose()
        if not self._num_faults.value:
            return []
        return numpy.flatnonzero(self._is_finite[: self._plan.num_rows] == 0).tolist()

    @property
    def token_ids(self) -> Array:
        """[rows] int64: what was chosen, where `keep` finds it."""
        return self._token_ids[: self._plan.num_rows]

    def keep(self) -> bytes:
        """Write the tokens into the histories; they, as an int32 column."""
        self._keep()
        return string_at(self._sampled, _INT * self._plan.num_rows)


_STEP_COLUMNS = (
    "positions", "rotations", "logit_rows", "query_starts", "context_lengths", "is_met",
)  # fmt: skip
_CHOICE_COLUMNS = ("largest", "best", "is_finite", "sums", "choice_positions", "token_ids")


def _memory_of_group(tables: GroupTables, rows: int) -> dict[str, Array]:
    """What the kernels write of one group's step, by name."""
    if not tables.max_blocks:
        return {name: numpy.zeros(rows, numpy.int32) for name in ("segment_reads", "segment_writes")}
    block_tables = numpy.zeros(rows * tables.max_blocks, numpy.int32)
    return {"kv_slots": numpy.zeros(rows, numpy.int64), "block_tables": block_tables}


def _memory(num_slots: int, rows: int, vocabulary: int) -> dict[str, Array]:
    """What the kernels write, by name."""
    blocks = -(-vocabulary // BLOCK)
    sizes = {
        numpy.int64: {"row_slots": rows, "computed": rows, "positions": rows, "rotations": rows}
        | {"logit_rows": rows, "best": rows, "choice_positions": rows, "token_ids": rows},
        numpy.int32: {"query_starts": rows + 1, "context_lengths": rows, "sampled": rows},
        numpy.uint8: {"is_met": num_slots, "is_finite": rows},
        numpy.float32: {"largest": rows, "maxima": rows * blocks},
        numpy.float64: {"sums": rows * blocks},
    }
    return {name: numpy.zeros(size, dtype) for dtype, named in sizes.items() for name, size in named.items()}
