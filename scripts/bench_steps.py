"""How a step's time grows with its rows and their contexts: a table without cliffs is what one wants to see.

    python scripts/bench_steps.py [--quantization int8] [--kv bf16] [--rows 1 2 4 …] [--contexts 128 256 …] [--rounds 5]
    python scripts/bench_steps.py --shape gemma3-1b --rows 1 --contexts 2048 32768      # a shape of bench_shapes.py

Decode steps of a random-weight Qwen3-0.6B shape, or another, in this process, forward and head, without a tree. Every
row has a block table of its own, a shuffle of one pool of blocks that no cache holds: contexts may be longer, all
together, than the pool, and none is a prefix of another. Beside the milliseconds stands what a step took beyond the one
with half the rows and beyond the one with half the context, as factors: more than 2 would be a cliff. Windows keep all
tokens here, and are read as far as they reach.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from bench_harness import machine, median
from bench_models import SHAPES, write_config
from peers import shape as compared
from peers.shapes import SHAPES as COMPARED

from penstock.kernels.states import Segments
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.kv.state_memory import StateMemory
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model
from penstock.worker.steps.batch import Batch
from penstock.worker.steps.block_tables import BlockRows

BLOCK_SIZE = 32
POOL_TOKENS = 16_384
Cell = tuple[int, int]  # rows, tokens of context


def decode_batch(model: Model, memory: ModelMemory, rows: int, context: int) -> Batch:
    """One more token for each of so many rows, `context` tokens long with it."""
    blocks = -(-context // BLOCK_SIZE)
    pool = next(group.num_blocks for group in memory.groups if not isinstance(group, StateMemory))
    tables = torch.stack([torch.randperm(pool)[:blocks] for _ in range(rows)]).to(torch.int32)
    positions = torch.full((rows,), context - 1)
    held = BlockRows(tables, tables[:, -1].long() * BLOCK_SIZE + positions % BLOCK_SIZE)
    states = torch.arange(rows, dtype=torch.int32)
    updated = Segments(
        torch.arange(rows + 1, dtype=torch.int32), states, states, torch.arange(rows + 1, dtype=torch.int32)
    )
    return Batch(
        token_ids=torch.randint(0, model.vocab_size, (rows,)),
        positions=positions,
        query_starts=list(range(rows + 1)),
        context_lengths=[context] * rows,
        groups=[updated if isinstance(group, StateMemory) else held for group in memory.groups],
        logit_rows=torch.arange(rows),
        memory=memory,
    )


def seconds(model: Model, batch: Batch) -> float:
    start = time.perf_counter()
    model.forward_pass.logits(model.forward_pass.forward(batch), batch.logit_rows)
    return time.perf_counter() - start


def measured(model: Model, memory: ModelMemory, cells: list[Cell], rounds: int) -> dict[Cell, float]:
    """Median seconds of each; a round goes through all cells."""
    times: dict[Cell, list[float]] = {cell: [] for cell in cells}
    for _ in range(rounds + 1):  # the first one warms up
        for cell in cells:
            times[cell].append(seconds(model, decode_batch(model, memory, *cell)))
    return {cell: median(taken[1:]) for cell, taken in times.items()}


def table(times: dict[Cell, float]) -> Iterator[str]:
    contexts = sorted({context for _, context in times})
    yield "| rows | " + " | ".join(f"{context:,}" for context in contexts) + " |"
    yield "| --- |" + " --- |" * len(contexts)
    for rows in sorted({rows for rows, _ in times}):
        cells = (f"{times[rows, context] * 1e3:.1f}" if (rows, context) in times else "" for context in contexts)
        yield f"| {rows} | " + " | ".join(cells) + " |"


def steepest(times: dict[Cell, float]) -> str:
    """The largest factor between neighbours: twice the rows, or twice the context."""
    steps = [
        (times[cell] / times[half], half, cell)
        for cell in times
        for half in ((cell[0] // 2, cell[1]), (cell[0], cell[1] // 2))
        if half in times and half != cell
    ]
    if not steps:
        return "No two cells are neighbours."
    factor, half, cell = max(steps)
    return f"Steepest: {half[0]} rows × {half[1]:,} → {cell[0]} rows × {cell[1]:,}: {factor:.2f} × the time."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", default="0.6b", choices=["0.6b", *COMPARED])
    parser.add_argument("--quantization", default="int8", help="of the weights, or none")
    parser.add_argument("--kv", default="bf16")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    form = None if arguments.quantization == "none" else arguments.quantization
    with TemporaryDirectory() as folder:
        if arguments.shape in COMPARED:
            compared.write_config(Path(folder), COMPARED[arguments.shape])
        else:
            shape = {**SHAPES[arguments.shape], "dtype": "bfloat16", "max_position_embeddings": 8192}
            write_config(Path(folder), shape)
        model = load_model(Path(folder), load_format="dummy", quantization=form, num_threads=arguments.threads)
    memory = model.plain_memory(max(POOL_TOKENS, *arguments.contexts) // BLOCK_SIZE, BLOCK_SIZE, arguments.kv)
    for tensor in (each for group in memory.groups if not isinstance(group, StateMemory) for each in group.tensors):
        tensor.view(torch.uint8).random_(56, 62)  # neither NaN nor denormal numbers in any format
    cells = [(rows, context) for rows in arguments.rows for context in arguments.contexts]
    times = measured(model, memory, cells, arguments.rounds)
    print(f"\nMilliseconds a step, weights {arguments.quantization}, KV {arguments.kv}:\n")
    print("\n".join(table(times)))
    print(f"\n{steepest(times)}")


if __name__ == "__main__":
    main()
