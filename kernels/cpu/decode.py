"""Fast path for pure decode steps: each row feeds its last token and samples one, without the interpreter.

`Slots` and `GroupTables` tell the kernels where a table of slots keeps its columns; a `Decode` is the memory and the
calls of such steps for one recorded program. Field for field the structures of source/decode.hpp, decode_begin.cpp and
decode_end.cpp.
"""

from collections.abc import Sequence
from ctypes import Structure, addressof, c_char_p, c_int64, c_void_p, string_at
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ..reference.sampling.order import BLOCK
from .library import Library
from .program import Step
from .sampling import DrawColumns, Logits

_INT = 4  # bytes of an entry in a plan's column


class Changes(Protocol):
    """The columns of a plan that concern one group of layers, int32 as they came."""

    block_ids: bytes
    block_offsets: bytes
    starts: bytes


class GroupTables(Structure):
    """Each slot's table in one group of layers: of blocks, or the state that it reads and the one that it writes."""

    _fields_ = [
        ("num_blocks", c_int64),  # or states
        ("max_blocks", c_int64),  # 0: the group has states
        ("num_table", c_void_p),  # int64 [num_slots]
        ("tables", c_void_p),  # int32 [num_slots, max_blocks]
        ("reads", c_void_p),  # int32 [num_slots], of states
        ("writes", c_void_p),
    ]


class Slots(Structure):
    """A table of slots: its bounds, and the addresses of its columns."""

    _fields_ = [
        ("num_slots", c_int64),
        ("max_model_len", c_int64),
        ("block_size", c_int64),
        ("num_groups", c_int64),
        ("groups", c_void_p),  # of GroupTables
        ("is_taken", c_void_p),  # bool [num_slots]
        ("is_plain", c_void_p),
        ("num_tokens", c_void_p),  # int64 [num_slots]
        ("num_computed", c_void_p),
        ("rotation_starts", c_void_p),
        ("histories", c_void_p),  # int32 [num_slots, max_model_len]
    ]


class DecodeGroup(Structure):
    """What a plan appends in one group of layers, as its columns came, and where the group's step gets its own."""

    _fields_ = [
        ("step", c_void_p),
        ("block_ids", c_char_p),  # int32
        ("num_block_ids", c_int64),
        ("block_offsets", c_char_p),
        ("num_offsets", c_int64),
        ("starts", c_char_p),
        ("num_starts", c_int64),
        ("kv_slots", c_void_p),
        ("block_tables", c_void_p),
        ("segment_reads", c_void_p),
        ("segment_writes", c_void_p),
    ]


class BeginDecode(Structure):
    _fields_ = [
        ("slots", c_void_p),
        ("groups", c_void_p),  # of DecodeGroup
        ("capacity", c_int64),
        ("num_rotations", c_int64),
        ("rows", c_char_p),  # int32 columns, as they came
        ("num_rows", c_int64),
        ("num_tokens", c_char_p),
        ("num_counts", c_int64),
        ("row_slots", c_void_p),
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("rotations", c_void_p),
        ("logit_rows", c_void_p),
        ("query_starts", c_void_p),
        ("context_lengths", c_void_p),
        ("is_met", c_void_p),
        ("is_begun", c_void_p),
    ]


class ChooseTokens(Structure):
    _fields_ = [
        ("step", c_void_p),
        ("row_slots", c_void_p),
        ("logits", Logits),
        ("columns", DrawColumns),
        ("largest", c_void_p),
        ("best", c_void_p),
        ("is_finite", c_void_p),
        ("sums", c_void_p),
        ("choice_positions", c_void_p),
        ("token_ids", c_void_p),
        ("num_faults", c_void_p),
    ]


class KeepTokens(Structure):
    _fields_ = [
        ("slots", c_void_p),
        ("step", c_void_p),
        ("row_slots", c_void_p),
        ("token_ids", c_void_p),
        ("sampled", c_void_p),
    ]


class Decode:
    """The calls around a recorded step of up to `capacity` rows: `begin`, then the step itself, `choose` and `keep`."""

    def __init__(
        self,
        library: Library,
        steps: Sequence[Step],
        groups: Sequence[GroupTables],
        slots: Slots,
        columns: DrawColumns,
        logits: Tensor,
    ) -> None:
        """Steps and tables are those of each group of layers, and `slots` is told here where the tables are.
        `logits` are those that the recorded step writes: [capacity, vocabulary].
        """
        memory = _memory(slots.num_slots, *logits.shape)
        of_groups = [_memory_of_group(group, len(logits)) for group in groups]
        tables = (GroupTables * len(groups))(*groups)
        changes = (DecodeGroup * len(groups))(
            *(
                DecodeGroup(step=addressof(step), **{name: own.data_ptr() for name, own in columns.items()})
                for step, columns in zip(steps, of_groups, strict=True)
            )
        )
        slots.num_groups, slots.groups = len(groups), addressof(tables)
        self._changes = list(changes)  # its own elements, not copies
        self._held = (steps, tables, slots, logits, memory, of_groups, changes)  # what is pointed to
        self._is_begun, self._num_faults = c_int64(), c_int64()
        self._token_ids, self._is_finite = memory["token_ids"], memory["is_finite"]
        at = {name: tensor.data_ptr() for name, tensor in memory.items()}
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
            logits=Logits(logits.data_ptr(), 0, logits.shape[1], at["maxima"]),
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
        return (self._is_finite[: self._plan.num_rows] == 0).nonzero().flatten().tolist()

    @property
    def token_ids(self) -> Tensor:
        """[rows] int64: what was chosen, where `keep` finds it."""
        return self._token_ids[: self._plan.num_rows]

    def keep(self) -> bytes:
        """Write the tokens into the histories; they, as an int32 column."""
        self._keep()
        return string_at(self._kept.sampled, _INT * self._plan.num_rows)


_STEP_COLUMNS = (
    "positions", "rotations", "logit_rows", "query_starts", "context_lengths", "is_met",
)  # fmt: skip
_CHOICE_COLUMNS = ("largest", "best", "is_finite", "sums", "choice_positions", "token_ids")


def _memory_of_group(tables: GroupTables, rows: int) -> dict[str, Tensor]:
    """What the kernels write of one group's step, by name."""
    if not tables.max_blocks:
        return {name: torch.zeros(rows, dtype=torch.int32) for name in ("segment_reads", "segment_writes")}
    block_tables = torch.zeros(rows * tables.max_blocks, dtype=torch.int32)
    return {"kv_slots": torch.zeros(rows, dtype=torch.int64), "block_tables": block_tables}


def _memory(num_slots: int, rows: int, vocabulary: int) -> dict[str, Tensor]:
    """What the kernels write, by name."""
    blocks = -(-vocabulary // BLOCK)
    sizes = {
        torch.int64: {"row_slots": rows, "computed": rows, "positions": rows, "rotations": rows}
        | {"logit_rows": rows, "best": rows, "choice_positions": rows, "token_ids": rows},
        torch.int32: {"query_starts": rows + 1, "context_lengths": rows, "sampled": rows},
        torch.uint8: {"is_met": num_slots, "is_finite": rows},
        torch.float32: {"largest": rows, "maxima": rows * blocks},
        torch.float64: {"sums": rows * blocks},
    }
    return {name: torch.zeros(size, dtype=dtype) for dtype, named in sizes.items() for name, size in named.items()}
