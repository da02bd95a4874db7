"""The time of a decode step by its rows and their contexts, in a table that should have no cliffs.

Decode steps of a random-weight Qwen3-0.6B shape, or one of `peers`, in this process, forward and head. The last line
names the steepest growth between neighbours, twice the rows or twice the context: more than 2 would be a cliff. Windows
keep all tokens here, and are read as far as they reach.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..batches import batch_of, dummy_model, filled_memory, step_seconds
from ..harness import Quantization, median
from ..shapes import EVERY
from ..shapes.shape import write_config

POOL_TOKENS = 16_384
Cell = tuple[int, int]  # rows, tokens of context


def run(
    shape: str = "0.6b", quantization: Quantization = "int8", kv: str = "bf16",
    rows: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64),
    contexts: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096, 8192), rounds: int = 5, threads: int = 2,
) -> Any:  # fmt: skip
    with TemporaryDirectory() as folder:
        write_config(Path(folder), EVERY[shape])
        model = dummy_model(Path(folder), quantization, threads)
    memory = filled_memory(model, max(POOL_TOKENS, *contexts), kv)
    times: dict[Cell, list[float]] = {(count, context): [] for count in rows for context in contexts}
    for _ in range(rounds + 1):  # the first one warms up
        for count, context in times:
            times[count, context].append(step_seconds(model, batch_of(model, memory, [(1, context)] * count)))
    found = {cell: median(taken[1:]) for cell, taken in times.items()}
    print(f"\nMilliseconds a step, weights {quantization}, KV {kv}:\n")
    print("\n".join(table(found)))
    print(f"\n{steepest(found)}")
    return {f"{count} x {context}": seconds for (count, context), seconds in found.items()}


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
