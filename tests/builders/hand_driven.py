"""A model without an engine: rows are given tokens to compute by hand, blocks are handed out as they are needed.

For tests of what the model computes. Each step is a list of (row, number of tokens), as a scheduler would plan it.
"""

import numpy
import torch
from torch import Tensor

from penstock.kernels import LoraMapping
from penstock.kernels.states import NO_STATE, Segments
from penstock.protocol.adapter_messages import NO_ADAPTER
from penstock.worker.kv.state_memory import StateMemory
from penstock.worker.start.model import Model
from penstock.worker.steps.batch import Batch
from penstock.worker.steps.block_tables import BlockRows


class HandDriven:
    """Rows of token histories over one KV memory."""

    def __init__(self, model: Model, num_blocks: int = 256, block_size: int = 16) -> None:
        self.model = model
        self.memory = model.plain_memory(num_blocks, block_size)
        self.block_size = block_size
        # Neither in order nor from 0, so that a block's number and its place in a row differ.
        self.free = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(1)).tolist()
        self.histories: list[list[int]] = []
        self.blocks: list[list[int]] = []
        self.computed: list[int] = []
        self.adapters: list[int] = []

    def add(self, prompt: list[int], adapter: int = NO_ADAPTER) -> int:
        """A new row; returns its number."""
        self.adapters.append(adapter)
        self.histories.append(list(prompt))
        self.blocks.append([])
        self.computed.append(0)
        return len(self.histories) - 1

    def step(self, plan: list[tuple[int, int]], every_token: bool = False) -> Tensor:
        """Compute so many further tokens of each row; logits of each row's last one, or of all."""
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for row, count in plan:
            own = range(self.computed[row], self.computed[row] + count)
            while len(self.blocks[row]) * self.block_size < own.stop:
                self.blocks[row].append(self.free.pop())
            token_ids += self.histories[row][own.start : own.stop]
            positions += own
            slots += [self._slot(row, position) for position in own]
            starts.append(len(token_ids))
            self.computed[row] = own.stop
        width = max(len(self.blocks[row]) for row, _ in plan)
        tables = [self.blocks[row] + [0] * (width - len(self.blocks[row])) for row, _ in plan]
        asked = list(range(len(token_ids))) if every_token else [end - 1 for end in starts[1:]]
        device = self.model.backend.device
        put = device.put
        blocks = BlockRows(put(numpy.array(tables, numpy.int32)), put(numpy.array(slots)))
        batch = Batch(
            token_ids=put(numpy.array(token_ids)),
            positions=put(numpy.array(positions)),
            query_starts=starts,
            context_lengths=[self.computed[row] for row, _ in plan],
            groups=self._groups(plan, starts, blocks),
            logit_rows=put(numpy.array(asked)),
            memory=self.memory,
            adapted=LoraMapping.of(
                numpy.array([self.adapters[row] for row, _ in plan]), numpy.array([count for _, count in plan]), put
            ),
        )
        # A copy: the next step may write its own in the same place.
        logits = self.model.forward_pass.logits(self.model.forward_pass.forward(batch), batch.logit_rows)
        return torch.from_numpy(device.host_copy(logits)().copy())

    def _groups(self, plan: list[tuple[int, int]], starts: list[int], blocks: BlockRows) -> list[BlockRows | Segments]:
        """All blocks alike; a row's state is the one of its own number, in place."""
        before = [NO_STATE if self.computed[row] == count else row for row, count in plan]
        columns = (starts, before, [row for row, _ in plan], range(len(plan) + 1))
        put = self.model.backend.device.put
        segments = Segments(*(put(numpy.array(each, numpy.int32)) for each in columns))
        return [segments if isinstance(each, StateMemory) else blocks for each in self.memory.groups]

    def greedy(self, rows: list[int], count: int, budget: int = 10_000) -> list[Tensor]:
        """Extend each row by `count` greedy tokens, prompts in chunks within the budget; logits of every choice."""
        chosen: list[list[Tensor]] = [[] for _ in rows]
        while any(len(logits) < count for logits in chosen):
            plan, left = [], budget
            for number, row in enumerate(rows):
                take = min(len(self.histories[row]) - self.computed[row], left)
                if take > 0 and len(chosen[number]) < count:
                    plan.append((row, take))
                    left -= take
            for (row, _), logits in zip(plan, self.step(plan), strict=True):
                if self.computed[row] == len(self.histories[row]):
                    chosen[rows.index(row)].append(logits)
                    self.histories[row].append(int(logits.argmax()))
        return [torch.stack(logits) for logits in chosen]

    def _slot(self, row: int, position: int) -> int:
        size = self.block_size
        return self.blocks[row][position // size] * size + position % size
