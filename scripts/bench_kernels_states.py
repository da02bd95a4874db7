"""What a layer of a gated delta net costs beside its products, for answers and for prompts.

    python scripts/bench_kernels_states.py             # Qwen3.5-4B's shape, 2 threads
    python scripts/bench_kernels_states.py --threads 1

16 key and 32 value heads of 128, a convolution of 4 over 8,192 channels. Times are the shortest of many calls, of one
thread by its own clock: other work on a machine only adds to them. Answers go through layers enough that their states
come from memory.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from bench_harness import processor
from machine_limits import read_bandwidth

from penstock.kernels import DeltaHeads, LayerStates
from penstock.kernels.cpu.library import load
from penstock.kernels.cpu.operations import NativeOperations
from penstock.kernels.cpu.program import Program
from penstock.kernels.cpu.structs import Step

KEY_HEADS, VALUE_HEADS, HEAD_DIM, WIDTH, LAYERS = 16, 32, 128, 4, 24
STATE_BYTES = 4 * VALUE_HEADS * HEAD_DIM * HEAD_DIM
# A pass over a state multiplies and adds for S × kept, k × change, o and the next token's Sᵀ k.
OPERATIONS = 7 * VALUE_HEADS * HEAD_DIM * HEAD_DIM


class OneRank:
    rank, size, peers = 0, 1, None


class Layers:
    """So many layers' convolutions, nets and norms, one program of each, on rows of so many tokens."""

    def __init__(self, rows: int, tokens: int, num_layers: int, clock: Callable[[], float]) -> None:
        self.num_layers, self.clock, total = num_layers, clock, rows * tokens
        starts = torch.arange(rows + 1, dtype=torch.int32)
        states = torch.arange(rows, dtype=torch.int32)
        self.kept = (starts * tokens, states, starts)
        self.step = Step(num_tokens=total, num_rows=rows, num_segments=rows)
        self.step.segment_starts, self.step.segments_of_rows = self.kept[0].data_ptr(), starts.data_ptr()
        self.step.segment_reads = self.step.segment_writes = states.data_ptr()
        heads = DeltaHeads(
            KEY_HEADS, VALUE_HEADS, HEAD_DIM, HEAD_DIM, torch.rand(VALUE_HEADS), torch.randn(VALUE_HEADS)
        )
        memories = [
            LayerStates(
                torch.randn(rows, WIDTH - 1, heads.width),
                torch.randn(rows, VALUE_HEADS, HEAD_DIM, HEAD_DIM) / 8,
            )
            for _ in range(num_layers)
        ]
        weight, values = torch.randn(heads.width, WIDTH) / 2, VALUE_HEADS * HEAD_DIM
        self.convolution = self._program(
            total, [heads.width],
            lambda ops, memory, x: ops.causal_convolution(x, weight, None, "silu", memory, self.step), memories,
        )  # fmt: skip
        self.net = self._program(
            total, [heads.width, VALUE_HEADS, VALUE_HEADS],
            lambda ops, memory, x, b, a: ops.delta_net(x, b, a, heads, memory, self.step), memories,
        )  # fmt: skip
        self.norm = self._program(
            total, [values, values],
            lambda ops, memory, x, gate: ops.gated_norm(x, gate, torch.ones(HEAD_DIM), 1e-6, VALUE_HEADS), memories,
        )  # fmt: skip

    def _program(
        self, total: int, widths: list[int], call: Callable, memories: list[LayerStates]
    ) -> Callable[[], None]:
        ops = NativeOperations(load(), OneRank())  # type: ignore[arg-type]
        program = Program(load(), total, self.step.address_of("num_tokens"))
        buffers = [program.buffer(width) for width in widths]
        with ops.recording(program, self.step):
            outputs = [call(ops, memory, *buffers) for memory in memories[: self.num_layers]]
        inputs = [torch.randn(total, width) for width in widths]
        self.kept += (buffers, outputs, inputs, program)

        def run() -> None:
            for buffer, input in zip(buffers, inputs, strict=True):  # what the net overwrites
                buffer.rows(total).copy_(input)
            began = self.clock()
            program.replay()
            self.took = self.clock() - began

        return run


def shortest(layers: Layers, run: Callable[[], None], repeats: int) -> float:
    """Of one layer, in seconds."""
    found = []
    for _ in range(repeats):
        run()
        found.append(layers.took / layers.num_layers)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--variant")
    chosen = parser.parse_args()
    library = load(chosen.variant)
    library.set_threads(chosen.threads)
    torch.set_num_threads(1)
    cpu = processor(Path("/proc/cpuinfo").read_text())["processor"]
    limit = read_bandwidth(chosen.threads)
    print(f"{cpu}, {library.variant}, {chosen.threads} threads; memory reads {limit:.1f} GB/s")
    for rows, tokens, num_layers in (
        (1, 1, LAYERS),
        (4, 1, LAYERS),
        (16, 1, 4),
        (1, 4, LAYERS),
        (1, 64, 4),
        (1, 512, 1),
    ):
        layers = Layers(rows, tokens, num_layers, time.thread_time if chosen.threads == 1 else time.perf_counter)
        times = [shortest(layers, run, chosen.repeats) for run in (layers.convolution, layers.net, layers.norm)]
        traffic, speed = 2 * rows * STATE_BYTES / times[1] / 1e9, rows * tokens * OPERATIONS / times[1] / 1e9
        each = ", ".join(f"{name} {taken * 1e6:8.1f}" for name, taken in zip(("convolution", "net", "norm"), times))
        whole = sum(times) / (rows * tokens) * 1e6
        print(f"{rows:2} × {tokens:3}: {each} µs a layer, {whole:6.2f} a token; "
              f"states {traffic:5.1f} GB/s, {speed:6.1f} G/s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
