"""A runner of a model whose next token depends on all tokens before, which it knows from a state alone.

`follower` says which token must come, without asking the code under test. One layer has full attention, one a window,
one a state.
"""

import torch
from builders.hand_planned import VOCABULARY
from torch import Tensor

from penstock.protocol.processes.trace import Trace
from penstock.worker.kv.kv_cache import KVCache, KVShape
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.kv.second_tier import second_tiers
from penstock.worker.kv.state_memory import StateMemory
from penstock.worker.models.groups import LayerGroup
from penstock.worker.models.state_shape import StateShape
from penstock.worker.parallel import Parallel
from penstock.worker.steps.batch import Batch
from penstock.worker.steps.runner import Runner
from penstock.worker.steps.slots import SlotTable

SIZE, STATES, CELLS, LENGTH = 4, 16, 8, 64
GROUPS = (LayerGroup("full", (0,)), LayerGroup("window", (2,), 9), LayerGroup("state", (1,), state=StateShape(3, 1)))


class StateModel:
    """Its next token depends on all tokens before, which it knows from a state alone: two numbers that each changes."""

    def forward(self, batch: Batch) -> Tensor:
        batch.rotations_by_layer = [None] * 3
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
    kv = [KVCache.allocate(KVShape(1, 1, 1), 40, SIZE, torch.float32, "cpu") for _ in range(2)]
    states = StateMemory.allocate(GROUPS[2].state, 1, STATES, "cpu")
    memory = ModelMemory.of([*kv, states], [group.layers for group in GROUPS], SIZE)
    table = SlotTable(6, LENGTH, [40, 40, STATES], SIZE, VOCABULARY, torch.device("cpu"), groups=GROUPS)
    tiers = second_tiers(memory, [CELLS] * 3)
    return Runner(StateModel(), memory, table, Parallel(), trace=Trace(None, "test"), second_tiers=tiers)


def prompt_of(length: int) -> list[int]:
    return [(11 * place + length) % VOCABULARY for place in range(length)]
