"""For each slot, the blocks of one group of layers that hold its tokens, in order.

Block ids are on the device, counts on the host. A window's table begins with blocks that were freed or never
allocated: they are stored as 0, and no token of the slot sees them.
"""

from typing import NamedTuple

import numpy

from ...kernels.arrays import DeviceArray
from ...protocol.layer_groups import ABSENT, GroupChanges
from ..device import Device
from ..plan_error import PlanError, require
from .step_rows import Ints, StepRows, all_within, column


class BlockRows(NamedTuple):
    """The locations of a step's rows and tokens in the blocks of one group."""

    block_tables: DeviceArray  # [R, max_blocks] int32, padded with 0
    kv_slots: DeviceArray  # [T] int64: block × block_size + offset of each token's key and value


class BlockTables:
    def __init__(
        self,
        num_slots: int,
        max_blocks: int,
        num_blocks: int,
        block_size: int,
        window: int | None,
        device: Device,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.window = window  # tokens that a query sees, including its own; None: all
        self.device = device
        self.num_table = numpy.zeros(num_slots, numpy.int64)  # blocks in the table
        self.num_absent = numpy.zeros(num_slots, numpy.int64)  # absent ones at the beginning
        self.tables = device.zeros((num_slots, max_blocks), numpy.int32)  # zeros beyond the count

    def empty(self, slot: int) -> None:
        self.num_table[slot] = self.num_absent[slot] = 0
        self.tables[slot] = 0

    def fork(self, slot: int, blocks: Ints) -> None:
        """Copy a whole table into an empty slot."""
        self.append(numpy.array([slot]), blocks, numpy.array([0, len(blocks)]))

    def advance(self, rows: StepRows, changes: GroupChanges) -> None:
        """Append the step's blocks, and check that all its tokens have the blocks that they read and write."""
        self.append(rows.slots, column(changes.block_ids), column(changes.block_offsets))
        self._check(rows)

    def take_back(self, slot: int, end: int) -> None:
        """Forget what was computed from position `end` on: it will be written again before it is read."""

    def step_rows(self, rows: StepRows, row_of_token: Ints, positions: Ints) -> BlockRows:
        """Locate the step's tokens, which have these `positions`."""
        size, width = self.block_size, -(-int(rows.ends.max()) // self.block_size)
        put = self.device.put
        blocks = self.tables[put(rows.slots[row_of_token]), put(positions // size)]
        kv_slots = self.device.cast(blocks, numpy.int64) * size + put(positions % size)
        return BlockRows(self.tables[put(rows.slots), :width], kv_slots)

    def append(self, slots: Ints, blocks: Ints, offsets: Ints) -> None:
        """Append blocks[offsets[r]:offsets[r + 1]] for each row r."""
        check_offsets(slots, blocks, offsets)
        if not len(blocks):
            return
        counts, is_absent = numpy.diff(offsets), blocks == ABSENT
        require(
            bool((self.num_table[slots] + counts <= self.tables.shape[1]).all()),
            f"makes a block table longer than {self.tables.shape[1]}",
        )
        row = numpy.repeat(numpy.arange(len(slots)), counts)
        index = numpy.arange(len(blocks)) - offsets[row] + self.num_table[slots[row]]
        if is_absent.any():
            self._append_absent(slots, row, index, is_absent)
            blocks = numpy.where(is_absent, 0, blocks)
        require(all_within(blocks, self.num_blocks), f"names a block outside 0..{self.num_blocks - 1}")
        put = self.device.put
        self.tables[put(slots[row]), put(index)] = put(blocks.astype(numpy.int32))
        self.num_table[slots] += counts

    def _append_absent(self, slots: Ints, row: Ints, index: Ints, is_absent: Ints) -> None:
        absent = numpy.bincount(row[is_absent], minlength=len(slots))
        self.num_absent[slots] += absent
        at_the_beginning = index[is_absent] < self.num_absent[slots[row[is_absent]]]
        require(
            self.window is not None and bool(at_the_beginning.all()),
            "has a block that isn't there where a token would read it",
        )

    def _check(self, rows: StepRows) -> None:
        reach = self.num_table[rows.slots] * self.block_size
        if (rows.ends > reach).any():
            row = int(numpy.flatnonzero(rows.ends > reach)[0])
            raise PlanError(
                f"The plan computes slot {rows.slots[row]} up to token {rows.ends[row]}, and its blocks reach "
                f"{reach[row]}."
            )
        if self.window is not None:
            firsts = numpy.maximum(rows.starts + 1 - self.window, 0) // self.block_size
            missing = firsts < self.num_absent[rows.slots]
            require(not missing.any(), f"has slots {rows.slots[missing].tolist()} read blocks that aren't there")


def check_offsets(slots: Ints, blocks: Ints, offsets: Ints) -> None:
    require(
        len(offsets) == len(slots) + 1
        and offsets[0] == 0
        and offsets[-1] == len(blocks)
        and bool((numpy.diff(offsets) >= 0).all()),
        f"has {len(offsets)} block offsets for {len(slots)} rows and {len(blocks)} blocks",
    )
