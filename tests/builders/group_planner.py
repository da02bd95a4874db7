"""Plans steps for a runner with several groups of layers, without an engine.

Blocks of a window go back to the pool as early as may be, and are taken by others at once; a state is changed for a
fresh one wherever a test wants it. `state_runner` is one of a model whose next token depends on all tokens before,
which it knows from a state alone; `follower` says which token must come, without asking the code under test. One of its
layers has full attention, one a window, one a state.
"""

import random
from dataclasses import dataclass, field

import torch
from builders.hand_planned import VOCABULARY
from builders.runner_harness import no_mask
from torch import Tensor

from penstock.kernels.arrays import FLOAT32
from penstock.kernels.torch.sampling import TensorSampling
from penstock.protocol.layer_groups import ABSENT, GroupChanges
from penstock.protocol.messages import Fork, NewSlot, StepPlan
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.processes.trace import Trace
from penstock.protocol.wire import column, values
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.backends.torch.staged_tier import second_tier
from penstock.worker.backends.torch.tensor_cache import KVCache
from penstock.worker.description.groups import LayerGroup
from penstock.worker.description.parts.mixers import StateShape
from penstock.worker.kv.kv_cache import KVShape
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.kv.state_memory import StateMemory
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.runner import Runner
from penstock.worker.steps.batch import Batch
from penstock.worker.steps.block_tables import BlockTables
from penstock.worker.steps.slots import SlotTable


@dataclass
class Sequence:
    """One slot as the planner knows it."""

    tokens: list[int]
    tables: list[list[int]]  # by group: blocks, or the states that it has, the last one being written
    num_computed: int = 0
    answer: list[int] = field(default_factory=list)


class GroupPlanner:
    def __init__(self, runner: Runner, seed: int = 1) -> None:
        self.runner = runner
        self.groups = runner.table.groups
        chance = random.Random(seed)
        counts = [group.num_blocks if isinstance(group, BlockTables) else group.num_states for group in self.groups]
        self.free = [chance.sample(range(count), count) for count in counts]
        self.sequences: dict[int, Sequence] = {}
        self.number = 0

    def add(self, slot: int, tokens: list[int]) -> NewSlot:
        self.sequences[slot] = Sequence(list(tokens), [[] for _ in self.groups])
        greedy = SamplingParams(temperature=0)
        return NewSlot(slot, column(tokens), len(tokens), 0, greedy, seed=0, sample=0)

    def step(
        self,
        rows: list[tuple[int, int]],
        fresh_states: tuple[int, ...] = (),
        forks: dict[int, int] | None = None,
        **rest,
    ) -> None:
        """Rows are (slot, number of tokens); these slots write a fresh state from the last token of their row on.
        `forks` are pairs of target and source."""
        plan_forks = [self._fork(source, target) for target, source in (forks or {}).items()]
        changes = [self._changes(number, rows, fresh_states, forks or {}) for number in range(len(self.groups))]
        slots, counts = column(slot for slot, _ in rows), column(count for _, count in rows)
        plan = StepPlan(self.number, slots, counts, changes, forks=plan_forks, **rest)
        self.number += 1
        result = self.runner.step(plan, no_mask)
        tokens = iter(values(result.sampled).tolist())
        for (slot, count), sampled in zip(rows, values(result.num_sampled), strict=True):
            sequence = self.sequences[slot]
            sequence.num_computed += count
            sequence.tokens += (own := [next(tokens) for _ in range(sampled)])
            sequence.answer += own

    def _fork(self, source: int, target: int) -> Fork:
        parent, tables = self.sequences[source], []
        for number, group in enumerate(self.groups):
            own = list(parent.tables[number])
            if isinstance(group, BlockTables):  # a block that is not full is computed into: it is copied
                if parent.num_computed % group.block_size:
                    own[-1] = self.free[number].pop(0)
            else:
                own = [self.free[number].pop(0)]
            tables.append(own)
        self.sequences[target] = Sequence(list(parent.tokens), tables, parent.num_computed)
        return Fork(source, target, 1, [column(table) for table in tables])

    def _changes(
        self, number: int, rows: list[tuple[int, int]], fresh: tuple[int, ...], forks: dict[int, int]
    ) -> GroupChanges:
        ids: list[int] = []
        starts: list[int] = []
        offsets = [0]
        for slot, count in rows:
            appended = self._appended(number, self.sequences[slot], count, slot in fresh)
            ids += [block for block, _ in appended]
            starts += [start for _, start in appended]
            offsets.append(len(ids))
        copies: list[int] = []
        for target, source in forks.items():
            pairs = zip(self.sequences[source].tables[number], self.sequences[target].tables[number], strict=False)
            if isinstance(self.groups[number], BlockTables):
                copies += [block for pair in pairs if pair[0] != pair[1] for block in pair]
            else:
                copies += [self.sequences[source].tables[number][-1], self.sequences[target].tables[number][-1]]
        has_states = not isinstance(self.groups[number], BlockTables)
        return GroupChanges(column(ids), column(offsets), column(starts) if has_states else b"", column(copies))

    def _appended(self, number: int, sequence: Sequence, count: int, is_fresh: bool) -> list[tuple[int, int]]:
        group, table, start = self.groups[number], sequence.tables[number], sequence.num_computed
        found: list[tuple[int, int]] = []
        if not isinstance(group, BlockTables):
            positions = ([] if table else [0]) + ([start + count - 1] if is_fresh else [])
            found = [(self.free[number].pop(0), position) for position in positions]
        else:
            if group.window is not None:
                for place in range(min(len(table), max(0, start - group.window + 1) // group.block_size)):
                    if table[place] != ABSENT:
                        self.free[number].append(table[place])
                        table[place] = ABSENT
            missing = -(-(start + count) // group.block_size) - len(table)
            found = [(self.free[number].pop(0), 0) for _ in range(missing)]
        table += [block for block, _ in found]
        return found


SIZE, STATES, CELLS, LENGTH = 4, 16, 8, 64
GROUPS = (LayerGroup("full", (0,)), LayerGroup("window", (2,), 9), LayerGroup("state", (1,), state=StateShape(3, 1)))


class StateModel:
    """Its next token depends on all tokens before, which it knows from a state alone: two numbers that each changes."""

    def forward(self, batch: Batch) -> Tensor:
        batch.rows, batch.rotations_by_layer = batch.groups, [None] * 3
        states, segments, _ = batch.of_layer(1)
        seen = torch.zeros(len(batch.token_ids), 1)
        for tokens, read, write in segments:
            memory = torch.zeros(2) if read is None else states.convolved[read, :, 0].clone()
            for place in range(tokens.start, tokens.stop):
                memory[0] = (3 * memory[0] + batch.token_ids[place]) % VOCABULARY
                memory[1] = (memory[1] + memory[0]) % VOCABULARY
                seen[place] = memory[1]
            states.convolved[write, :, 0] = memory
        return seen

    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor:
        return -(torch.arange(VOCABULARY) - hidden[rows]).abs()


def follower(tokens: list[int]) -> int:
    first = second = 0
    for token in tokens:
        first = (3 * first + token) % VOCABULARY
        second = (second + first) % VOCABULARY
    return second


def state_runner() -> Runner:
    kv = [KVCache.allocate(KVShape(1, 1, 1), 40, SIZE, FLOAT32, "cpu") for _ in range(2)]
    states = StateMemory.allocate(GROUPS[2].state, 1, STATES, TensorDevice(torch.device("cpu")).zeros)
    memory = ModelMemory.of([*kv, states], [group.layers for group in GROUPS], SIZE)
    table = SlotTable(6, LENGTH, [40, 40, STATES], SIZE, VOCABULARY, TensorDevice(torch.device("cpu")), groups=GROUPS)
    tiers = [second_tier(group.parts, CELLS) for group in memory.groups]
    ways = {"sampling": TensorSampling(), "second_tiers": tiers}
    return Runner(StateModel(), memory, table, Parallel(), trace=Trace(None, "test"), **ways)


def prompt_of(length: int) -> list[int]:
    return [(11 * place + length) % VOCABULARY for place in range(length)]
