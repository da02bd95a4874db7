"""Attention of one layer by format of keys and values, next to what the machine allows; several libraries in turns.

    scripts/benchmark attention --steps 512@16384 1@32768 8x1@8192 --kv bf16 int8
    scripts/benchmark attention --libraries before.so after.so       # two builds, each round one after the other

A step is ROWSxTOKENS@CONTEXT. Of the last library it says which share it reaches of the units' peak and of memory's
speed, both read right afterwards. Times are those of the clock, so other work counts; with one thread they are the
thread's own.
"""

import ctypes
import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy

from penstock.kernels.cpu.calls.attention import PlanMemory, num_part_floats
from penstock.kernels.cpu.kv_memory import KV_FORMATS
from penstock.kernels.cpu.library import Library, load, struct_of
from penstock.kernels.cpu.structs import Attention, Quantized, Step
from penstock.worker.kv.host_memory import use_huge_pages
from penstock.worker.kv.kv_cache import KVShape, NativeKVCache

from ..batches import BLOCK_SIZE
from ..harness import compare, median
from .kernels import UNITS, peaks

STEPS = ("512@2048", "512@8192", "512@16384", "1@1024", "1@8192", "1@32768", "8x1@8192")


def run(
    steps: tuple[str, ...] = STEPS, kv: tuple[str, ...] = tuple(KV_FORMATS), libraries: tuple[str, ...] = (),
    query_heads: int = 16, key_heads: int = 8, head_dim: int = 128, rounds: int = 5, threads: int = 2,
) -> Any:  # fmt: skip
    loaded = {path: Library(path, Path(path)) for path in libraries} or {load().variant: load()}
    for library in loaded.values():
        library.set_threads(threads)
    found = {}
    for kind in kv:
        for name in steps:
            step = OneLayer.of(name, kind, query_heads, KVShape(1, key_heads, head_dim))
            timed = {each: partial(step.milliseconds, library, threads) for each, library in loaded.items()}
            results = compare(f"{name}, keys and values {kind}", timed, rounds, "ms")
            found[f"{name} {kind}"] = shares = step.shares(
                median(results[list(loaded)[-1]]), peaks(threads), UNITS[kind]
            )
            print(", ".join(f"{share:.0%} of {what}" for what, share in shares.items()), flush=True)
    return found


@dataclass
class OneLayer:
    """A step's arguments and the memory behind them: numbers that are neither NaN nor denormal."""

    plan: PlanMemory
    arguments: Attention
    kept: list[Any]
    num_bytes: int  # of keys and values
    operations: float

    @classmethod
    def of(cls, name: str, kind: str, query_heads: int, shape: KVShape) -> "OneLayer":
        parts = re.fullmatch(r"(?:(\d+)x)?(\d+)@(\d+)", name)
        if parts is None:
            raise SystemExit(f"{name!r} is not ROWSxTOKENS@CONTEXT, as in 8x1@8192 or 512@16384.")
        rows, tokens, context = (int(each or 1) for each in parts.groups())
        width, chance = -(-context // BLOCK_SIZE), numpy.random.default_rng(0)
        cache = NativeKVCache.allocate(shape, rows * width, BLOCK_SIZE, kind)
        for part in cache.parts:
            use_huge_pages(part)  # before it is touched, as a worker does
            octets = part.view(numpy.uint8)
            octets[:] = chance.integers(56, 62, octets.shape, numpy.uint8)
        tables = chance.permutation(rows * width).astype(numpy.int32).reshape(rows, width)
        positions = numpy.tile(numpy.arange(context - tokens, context), rows)
        starts = numpy.arange(0, rows * tokens + 1, tokens, dtype=numpy.int32)
        contexts = numpy.full(rows, context, numpy.int32)
        step = struct_of(
            Step, num_tokens=rows * tokens, num_rows=rows, table_width=width, positions=positions,
            query_starts=starts, context_lengths=contexts, block_tables=tables,
        )  # fmt: skip
        size, heads = shape.head_dim, query_heads
        query = chance.standard_normal((rows * tokens, heads * size), numpy.float32)
        output, left = numpy.empty_like(query), numpy.empty(num_part_floats(heads, size), numpy.float32)
        at = ctypes.addressof(step)
        plan = PlanMemory.allocate(at, rows * tokens, rows, BLOCK_SIZE, shape.num_kv_heads, heads)
        arguments = struct_of(
            Attention, plan.address, cache.of_layer(0), query, heads * size, size, size**-0.5, 0.0, None, left, output,
            Quantized(),
        )  # fmt: skip
        looks = rows * (tokens * context - tokens * (tokens - 1) / 2)  # queries × keys that they see
        kept = [step, cache, positions, starts, contexts, tables, query, output, left]
        read = sum(part.nbytes for part in cache.parts)
        return cls(plan, arguments, kept, read, 4 * looks * heads * size)

    def milliseconds(self, library: Library, threads: int) -> float:
        library.call("penstock_plan_attention", self.plan.arguments)
        clock = time.thread_time if threads == 1 else time.perf_counter
        start = clock()
        library.call("penstock_attention", self.arguments)
        return (clock() - start) * 1e3

    def shares(self, milliseconds: float, most: dict[str, float], unit: str) -> dict[str, float]:
        """What is reached of the units' peak, and of memory's speed."""
        seconds = milliseconds / 1e3
        return {
            "the units' peak": self.operations / seconds / 1e9 / most[unit],
            "memory's speed": self.num_bytes / seconds / 1e9 / most["read"],
        }
