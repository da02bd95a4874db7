"""How fast attention reads its paged memory, and how near prompts come to the processor's peak.

    python scripts/bench_kernels_attention.py                      # all rows, 2 threads
    python scripts/bench_kernels_attention.py --kinds bf16 int8    # of some formats only

The shape is Qwen3-0.6B's: 16 query and 8 key heads of 128, 28 layers (fewer are held in memory, each one larger than a
cache together; times are scaled). Limits are probed between the rows, for memory's speed drifts. Knows no model.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from ctypes import addressof
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from bench_harness import processor
from machine_limits import limits, read_bandwidth
from torch import Tensor

from penstock.kernels.cpu.calls.attention import PlanMemory, num_part_floats
from penstock.kernels.cpu.kv_memory import KV_FORMATS
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.structs import Attention, RotaryTable, Step, StoreHeads
from penstock.worker.kv.host_memory import BackgroundTouch
from penstock.worker.kv.kv_cache import KVShape, NativeKVCache

MODEL_LAYERS, QUERY_HEADS, HEADS, HEAD_DIM, BLOCK_SIZE = 28, 16, 8, 128, 32
DECODES = [(1, 1024), (1, 8192), (4, 512), (4, 4096), (16, 1024)]
PROMPTS = [512, 2048]


@dataclass
class Bench:
    """Rows of one kind that attend in every layer."""

    library: Library
    kind: str
    rows: list[tuple[int, int]]  # (tokens of the step, context)
    num_layers: int

    def __post_init__(self) -> None:
        counts = [-(-context // BLOCK_SIZE) for _, context in self.rows]
        shape = KVShape(self.num_layers, HEADS, HEAD_DIM)
        self.kv = NativeKVCache.allocate(shape, sum(counts) + 1, BLOCK_SIZE, self.kind)
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0)) + 1
        self.tables = torch.zeros(len(self.rows), max(counts), dtype=torch.int32)
        for row, blocks in enumerate(order.split(counts)):
            self.tables[row, : len(blocks)] = blocks
        touch = BackgroundTouch(self.kv.tensors, lambda left: None)  # on huge pages, as in a tree that has started
        touch.start()
        touch.wait()
        self._fill()
        self.step, self.kept = self._step(self.rows)
        tokens = self.step.num_tokens
        self.heads = torch.randn(tokens, QUERY_HEADS + 2 * HEADS, HEAD_DIM)
        self.output = torch.empty(tokens, QUERY_HEADS * HEAD_DIM)
        self.parts = torch.empty(num_part_floats(QUERY_HEADS, HEAD_DIM))
        self.plan = PlanMemory.allocate(addressof(self.step), tokens, len(self.rows), BLOCK_SIZE, HEADS, QUERY_HEADS)
        memories = [self.kv.of_layer(layer) for layer in range(self.num_layers)]
        self.stores = [self._store(memory, self.step, self.heads) for memory in memories]
        self.attentions = [
            Attention(
                plan=self.plan.address, kv=memory, query=self.heads.data_ptr(), query_stride=self.heads[0].numel(),
                query_step=HEAD_DIM, scale=HEAD_DIM**-0.5, parts=self.parts.data_ptr(), output=self.output.data_ptr(),
            )
            for memory in memories
        ]  # fmt: skip

    def share(self, prefix: int) -> None:
        """From now on all rows begin with the first one's blocks."""
        blocks = prefix // BLOCK_SIZE
        self.kept[4][:, :blocks] = self.kept[4][0, :blocks]
        self.plan_step()

    def plan_step(self) -> None:
        self.library.call("penstock_plan_attention", self.plan.arguments)

    def attend(self) -> None:
        for arguments in self.attentions:
            self.library.call("penstock_attention", arguments)

    def store(self) -> None:
        for arguments in self.stores:
            self.library.call("penstock_store_heads", arguments)

    @property
    def bytes_read(self) -> int:
        """By one pass over the layers that are held."""
        token = 2 * self.num_layers * HEADS * KV_FORMATS[self.kind].bytes_per_token(HEAD_DIM)
        return token * sum(context for _, context in self.rows)

    @property
    def operations(self) -> int:
        """Multiplications and additions of one pass, those of hidden keys not counted."""
        pairs = sum(tokens * context - tokens * (tokens - 1) // 2 for tokens, context in self.rows)
        return 4 * pairs * QUERY_HEADS * HEAD_DIM * self.num_layers

    def _fill(self) -> None:
        """One layer token by token, the others with its bytes."""
        for row, (_, context) in enumerate(self.rows):
            step, kept = self._step([(context, context)], self.tables[row : row + 1])
            heads = torch.randn(context, QUERY_HEADS + 2 * HEADS, HEAD_DIM)
            self.library.call("penstock_store_heads", self._store(self.kv.of_layer(0), step, heads))
            del kept
        for tensor in self.kv.tensors:
            tensor[1:] = tensor[:1]

    def _store(self, memory: object, step: Step, heads: Tensor) -> StoreHeads:
        return StoreHeads(
            step=addressof(step), heads=heads.data_ptr(), num_query_heads=QUERY_HEADS, query_step=HEAD_DIM,
            rotary=addressof(self.rotary), rotation=1, num_rotated=HEAD_DIM,
            kv=memory, query_norm=_ONES.data_ptr(), key_norm=_ONES.data_ptr(), epsilon=1e-6,
        )  # fmt: skip

    @cached_property
    def rotary(self) -> RotaryTable:
        angle = torch.rand(max(context for _, context in self.rows), HEAD_DIM)
        self.angles = angle.cos(), angle.sin()
        return RotaryTable(*(table.data_ptr() for table in self.angles))

    def _step(self, rows: list[tuple[int, int]], tables: Tensor | None = None) -> tuple[Step, list[Tensor]]:
        tables = self.tables if tables is None else tables
        positions = [torch.arange(context - tokens, context) for tokens, context in rows]
        slots = [
            tables[row].long()[own // BLOCK_SIZE] * BLOCK_SIZE + own % BLOCK_SIZE for row, own in enumerate(positions)
        ]
        starts = torch.tensor([0, *(tokens for tokens, _ in rows)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        contexts = torch.tensor([context for _, context in rows], dtype=torch.int32)
        kept = [torch.cat(positions), torch.cat(slots), starts, contexts, tables.contiguous()]
        names = ("positions", "kv_slots", "query_starts", "context_lengths", "block_tables")
        step = Step(num_tokens=int(starts[-1]), num_rows=len(rows), table_width=tables.shape[1])
        for name, tensor in zip(names, kept, strict=True):
            setattr(step, name, tensor.data_ptr())
        step.rotations = step.positions
        return step, kept


_PEAKS = {"float32": "float32_gflop_s", "bf16": "bfloat16_gflop_s", "int8": "int8_gop_s"}
_ONES = torch.ones(HEAD_DIM)


def seconds(run: Callable[[], None], repeats: int) -> float:
    run()
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def decode_row(library: Library, kind: str, batch: int, context: int, threads: int, repeats: int) -> str:
    layers = max(2, min(MODEL_LAYERS, (384 << 20) // (batch * context * 2 * HEADS * HEAD_DIM)))
    bench = Bench(library, kind, [(1, context)] * batch, layers)
    planning = seconds(bench.plan_step, repeats)
    before, taken = read_bandwidth(threads), seconds(bench.attend, repeats)
    limit = statistics.mean((before, read_bandwidth(threads)))
    speed = bench.bytes_read / taken / 1e9
    scaled = MODEL_LAYERS / layers * taken * 1e3
    share = f"{speed / limit:5.0%} of {limit:.1f}   plan {planning * 1e6:.0f} µs"
    return f"{kind:6} {batch:3} × {context:<6,} {scaled:8.2f} ms {speed:6.1f} GB/s {share}"


def shared_row(library: Library, kind: str, repeats: int) -> str:
    bench = Bench(library, kind, [(1, 1024)] * 16, 8)
    bench.plan_step()
    scale, apart = MODEL_LAYERS / 8 * 1e3, seconds(bench.attend, repeats)
    bench.share(768)
    together = seconds(bench.attend, repeats)
    return f"{kind:6}  16 × 1,024 {scale * apart:8.2f} ms, {scale * together:.2f} ms with 768 tokens in common"


def prompt_row(library: Library, kind: str, tokens: int, repeats: int, peaks: dict) -> str:
    bench = Bench(library, kind, [(tokens, tokens)], 2)
    bench.plan_step()
    taken, storing = seconds(bench.attend, repeats), seconds(bench.store, repeats)
    speed = bench.operations / taken / 1e9
    shares = ", ".join(f"{speed / peak:.0%} of {name}" for name, peak in peaks.items() if peak)
    scale = MODEL_LAYERS / bench.num_layers * 1e3
    times = f"{scale * taken:8.1f} ms, to store them {scale * storing:.1f} ms"
    return f"{kind:6} {tokens:5,} tokens {times} {speed:7.0f} G/s ({shares})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=list(KV_FORMATS), choices=list(KV_FORMATS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--variant")
    chosen = parser.parse_args()
    library = load(chosen.variant)
    library.set_threads(chosen.threads)
    torch.set_num_threads(1)
    cpu = processor(Path("/proc/cpuinfo").read_text())["processor"]
    found = limits(chosen.threads)
    peaks = {name: found[key] for name, key in _PEAKS.items()}
    print(f"{cpu}, {library.variant}, {chosen.threads} threads; limits: {found}")
    for batch, context in DECODES:
        for kind in chosen.kinds:
            print(decode_row(library, kind, batch, context, chosen.threads, chosen.repeats), flush=True)
    for kind in chosen.kinds:
        print(shared_row(library, kind, chosen.repeats), flush=True)
    for tokens in PROMPTS:
        for kind in chosen.kinds:
            print(prompt_row(library, kind, tokens, chosen.repeats, peaks), flush=True)


if __name__ == "__main__":
    main()
