"""Plans written by hand for a runner, and a model whose next token can be told without computing it.

`ChainModel` follows `follower`: a test can say what must be sampled without asking the code under test.
"""

from collections.abc import Sequence

import torch
from builders.runner_harness import no_mask
from torch import Tensor

from penstock.kernels.arrays import FLOAT32
from penstock.kernels.torch.sampling import TensorSampling
from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.messages import ChunkLayers, NewSlot, StepPlan, StepResult
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.processes.trace import Trace
from penstock.protocol.wire import column, values
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.backends.torch.staged_tier import second_tier
from penstock.worker.backends.torch.tensor_cache import KVCache
from penstock.worker.kv.kv_cache import KVShape
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.runner import Runner
from penstock.worker.steps.batch import Batch
from penstock.worker.steps.slots import SlotTable

VOCABULARY = 101
BLOCK_SIZE = 4
NUM_BLOCKS = 20
MAX_MODEL_LEN = 24


def follower(token: int, position: int) -> int:
    """The token that comes after `token` at `position`."""
    return (3 * token + position + 1) % VOCABULARY


class ChainModel:
    """Writes each token's id where its key goes, so that blocks can be looked into; a token `nan_after` breaks it."""

    vocab_size = VOCABULARY
    num_layers = 3
    nan_after = -1

    def forward(self, batch: Batch) -> Tensor:
        self.batch = batch
        slots = batch.groups[0].kv_slots
        blocks, places = slots // BLOCK_SIZE, slots % BLOCK_SIZE
        batch.memory.groups[0].keys[0, blocks, 0, places, 0] = batch.token_ids.float()
        return torch.stack((batch.token_ids, batch.positions), 1)

    def compute_layers(self, batch: Batch, first: int, end: int) -> None:
        if end == self.num_layers:
            self.forward(batch)

    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor:
        hidden = hidden[rows]
        best = (3 * hidden[:, 0] + hidden[:, 1] + 1) % VOCABULARY
        distance = (torch.arange(VOCABULARY) - best[:, None]).abs().float()
        return torch.where(hidden[:, :1] == self.nan_after, torch.nan, -distance)


def chain_runner(num_cells: int = 0) -> Runner:
    kv = KVCache.allocate(KVShape(1, 1, 1), NUM_BLOCKS, BLOCK_SIZE, FLOAT32, "cpu")
    memory = ModelMemory.of_one(kv, BLOCK_SIZE)
    table = SlotTable(6, MAX_MODEL_LEN, [NUM_BLOCKS], BLOCK_SIZE, VOCABULARY, TensorDevice(torch.device("cpu")))
    cells = [second_tier(kv.parts, num_cells)] if num_cells else []
    ways = {"sampling": TensorSampling(), "second_tiers": cells}
    return Runner(ChainModel(), memory, table, Parallel(), trace=Trace(None, "test"), **ways)


def new(slot: int, token_ids: Sequence[int], *, num_computed: int = 0, **params) -> NewSlot:
    settled = SamplingParams(**{"temperature": 0, **params})
    return NewSlot(slot, column(token_ids), len(token_ids), num_computed, settled, seed=7, sample=0)


def plan(step: int, rows: Sequence[tuple[int, int, Sequence[int]]], **rest) -> StepPlan:
    """Rows are (slot, number of tokens, new blocks); one group, whose copies, saves and loads may be given."""
    moves = {name: rest.pop(name) for name in ("copies", "saves", "loads") if name in rest}
    offsets = [0]
    for _, _, blocks in rows:
        offsets.append(offsets[-1] + len(blocks))
    return StepPlan(
        step,
        column(slot for slot, _, _ in rows),
        column(count for _, count, _ in rows),
        [GroupChanges(column(block for _, _, blocks in rows for block in blocks), column(offsets), **moves)],
        **rest,
    )


def layers(slot: int, count: int, first: int, end: int, blocks: Sequence[int] = ()) -> ChunkLayers:
    """Layers of a chunk; the blocks come with the first."""
    changes = [GroupChanges(column(blocks), column([0, len(blocks)]))]
    return ChunkLayers(slot, count, first, end, [] if first else changes)


def sampled(result: StepResult) -> list[list[int]]:
    """Each row's tokens."""
    tokens = iter(values(result.sampled))
    return [[next(tokens) for _ in range(count)] for count in values(result.num_sampled)]


def step(runner: Runner, number: int, rows: Sequence[tuple[int, int, Sequence[int]]], **rest) -> list[list[int]]:
    return sampled(runner.step(plan(number, rows, **rest), no_mask))
