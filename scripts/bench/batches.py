"""Steps of a model in this process, without a tree: a batch of rows over a paged memory, and the seconds it takes.

A row is so many tokens of the step at the end of a context; its blocks are a shuffle of one pool, so that contexts may
be longer, all together, than the pool. Nothing in a block has to be true.
"""

from pathlib import Path

import numpy

from penstock.kernels.states import Segments
from penstock.worker.backends.backend import BackendOptions
from penstock.worker.kv.host_memory import BackgroundTouch
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.kv.state_memory import StateMemory
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model
from penstock.worker.steps.batch import Batch
from penstock.worker.steps.block_tables import BlockRows

from .harness import seconds_of

BLOCK_SIZE = 32
DEFAULT = BackendOptions()
Rows = list[tuple[int, int]]  # tokens in the step, and the context with them


def dummy_model(folder: Path, quantization: str, threads: int, options: BackendOptions = DEFAULT) -> Model:
    form = None if quantization == "none" else quantization
    return load_model(folder, load_format="dummy", quantization=form, num_threads=threads, options=options)


def filled_memory(model: Model, tokens: int, kind: str) -> ModelMemory:
    """Memory on huge pages, as in a tree that has started, full of numbers that are neither NaN nor denormal."""
    memory = model.plain_memory(tokens // BLOCK_SIZE, BLOCK_SIZE, kind)
    kept = [each for group in memory.groups if not isinstance(group, StateMemory) for each in group.parts]
    arrays = list(model.backend.on_host(kept))
    touch = BackgroundTouch(arrays, lambda left: None)
    touch.start()
    touch.wait()
    chance = numpy.random.default_rng(0)
    for array in arrays:
        octets = array.view(numpy.uint8)
        octets[:] = chance.integers(56, 62, octets.shape, numpy.uint8)
    return memory


def batch_of(model: Model, memory: ModelMemory, rows: Rows, common: int = 0) -> Batch:
    """Random tokens; logits are wanted of each row's last one. So many tokens of the contexts are in common."""
    tokens, contexts = [count for count, _ in rows], [context for _, context in rows]
    pool = next(group.num_blocks for group in memory.groups if not isinstance(group, StateMemory))
    width = -(-max(contexts) // BLOCK_SIZE)
    chance, put = numpy.random.default_rng(0), model.backend.device.put
    tables = numpy.stack([chance.permutation(pool)[:width] for _ in rows]).astype(numpy.int32)
    tables[:, : common // BLOCK_SIZE] = tables[0, : common // BLOCK_SIZE]
    positions = numpy.concatenate([numpy.arange(context - count, context) for count, context in rows])
    owners = numpy.repeat(numpy.arange(len(rows)), tokens)
    slots = tables[owners, positions // BLOCK_SIZE].astype(numpy.int64) * BLOCK_SIZE + positions % BLOCK_SIZE
    starts = numpy.cumsum([0, *tokens], dtype=numpy.int32)
    states, segments = (numpy.arange(count, dtype=numpy.int32) for count in (len(rows), len(rows) + 1))
    of_states, blocks = Segments(*map(put, (starts, states, states, segments))), BlockRows(put(tables), put(slots))
    return Batch(
        token_ids=put(chance.integers(0, model.vocab_size, len(positions))),
        positions=put(positions),
        query_starts=starts.tolist(),
        context_lengths=contexts,
        groups=[of_states if isinstance(group, StateMemory) else blocks for group in memory.groups],
        logit_rows=put(starts[1:].astype(numpy.int64) - 1),
        memory=memory,
    )


def step_seconds(model: Model, batch: Batch) -> float:
    """Seconds of forward pass and head, as the worker runs them."""
    return seconds_of(lambda: model.forward_pass.logits(model.forward_pass.forward(batch), batch.logit_rows))
