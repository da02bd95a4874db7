"""How near a mixture's experts come to memory's speed at few tokens, and to the units' peak at many.

    python scripts/bench_kernels_experts.py                               # int8 and int4, 1 to 512 tokens, 2 threads
    python scripts/bench_kernels_experts.py --kinds bf16 --rows 1 16      # of some formats and some numbers of tokens
    python scripts/bench_kernels_experts.py --libraries old.so new.so     # two libraries taking turns

One layer in Qwen3-30B-A3B's shape: 128 experts, of which each token has eight at random, together many times what a
cache takes. No two calls in a row share an expert at one token. Bytes are those of the experts that some token chose;
limits are probed in between, for memory's speed drifts.
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from ctypes import addressof, c_int32
from dataclasses import dataclass
from pathlib import Path

import torch
from bench_kernels import processor
from machine_limits import limits, read_bandwidth
from torch import Tensor

from penstock.kernels.cpu.calls.experts import gating_of, memory_bytes
from penstock.kernels.cpu.layer import QuantizedRows
from penstock.kernels.cpu.library import Library, load, struct_of
from penstock.kernels.cpu.structs import Experts, Quantize
from penstock.kernels.cpu.weights.packed import DEFAULT_GROUP_SIZE, NativeWeight, empty, pack
from penstock.kernels.experts import ExpertWeights, GatedActivation

HIDDEN, WIDTH, NUM_EXPERTS, TOP_K = 2048, 768, 128, 8
MATRICES = ((2 * WIDTH, HIDDEN), (HIDDEN, WIDTH))  # of gate and up, and of down
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass
class Layer:
    """The experts of one format, the arguments of a call, and what these point to."""

    kind: str
    weights: ExpertWeights
    num_rows: c_int32
    chosen: Tensor  # int32 [most tokens, TOP_K], drawn anew for each call
    arguments: Experts
    kept: list[object]

    @classmethod
    def make(cls, library: Library, kind: str, group_size: int, most_rows: int) -> "Layer":
        gate_up, down = (copies(pack([torch.randn(shape)], kind, group_size)) for shape in MATRICES)  # type: ignore[arg-type]
        weights = ExpertWeights(gate_up, down, None, None, 0, NUM_EXPERTS, WIDTH, GatedActivation())
        num_rows, x = c_int32(most_rows), torch.randn(most_rows, HIDDEN)
        integers, output = QuantizedRows.empty(most_rows, HIDDEN), torch.empty(most_rows, HIDDEN)
        structure = integers.structure()
        library.call("penstock_quantize", Quantize(addressof(num_rows), x.data_ptr(), HIDDEN, structure))
        chosen, shares = torch.zeros(most_rows, TOP_K, dtype=torch.int32), torch.full((most_rows, TOP_K), 1 / TOP_K)
        num_bytes = memory_bytes(weights, HIDDEN, TOP_K, most_rows)
        memory = torch.empty(num_bytes + 64, dtype=torch.uint8)
        aligned = memory.data_ptr() + -memory.data_ptr() % 64
        arguments = struct_of(
            Experts, num_rows=addressof(num_rows), input=x, quantized_input=structure, experts=chosen, weights=shares,
            top_k=TOP_K, first=0, num_experts=NUM_EXPERTS, hidden=HIDDEN, width=WIDTH, gate_up=gate_up.structure(),
            down=down.structure(), gating=gating_of(weights.activation), memory=aligned, memory_bytes=num_bytes,
            output=output,
        )  # fmt: skip
        return cls(kind, weights, num_rows, chosen, arguments, [x, integers, output, shares, memory])

    def draw(self, rows: int) -> int:
        """New routes; returns how many bytes the chosen experts have."""
        self.num_rows.value = rows
        last = set(self.chosen[0].tolist()) if rows == 1 else set()
        for row in range(rows):
            fresh = [number for number in torch.randperm(NUM_EXPERTS).tolist() if number not in last]
            self.chosen[row] = torch.tensor(fresh[:TOP_K])
        share = len(self.chosen[:rows].unique()) / NUM_EXPERTS
        return int((self.weights.gate_up.nbytes + self.weights.down.nbytes) * share)

    def seconds(self, library: Library) -> float:
        function, address = library.function(f"penstock_experts_{self.kind}"), addressof(self.arguments)
        start = time.perf_counter()
        function(address)
        return time.perf_counter() - start


def copies(one: NativeWeight) -> NativeWeight:
    """As many experts as there are, all with the same numbers, each in memory of its own."""
    whole = empty(one.kind, NUM_EXPERTS * one.out_features, one.in_features, one.group_size, one.has_zeros)
    scales = 4 * one.out_features if one.kind == "int8" else 0  # behind the panels of all
    for part, source in zip(
        whole.data.split([whole.nbytes - NUM_EXPERTS * scales, NUM_EXPERTS * scales]),
        one.data.split([one.nbytes - scales, scales]),
        strict=True,
    ):
        part.view(NUM_EXPERTS, -1)[:] = source
    return whole


@dataclass
class Taken:
    """What calls of one library and format took."""

    seconds: list[float]
    num_bytes: list[int]


def measured(layer: Layer, libraries: list[Library], rows: int, repeats: int, threads: int) -> list[Taken]:
    """By turns: some calls of each library, the first of them not counted."""
    taken = [Taken([], []) for _ in libraries]
    for _ in range(repeats):
        for library, own in zip(libraries, taken, strict=True):
            library.set_threads(threads)
            for call in range(12 if rows <= 16 else 3):
                num_bytes = layer.draw(rows)
                seconds = layer.seconds(library)
                if call > 0:
                    own.seconds.append(seconds)
                    own.num_bytes.append(num_bytes)
            library.set_threads(1)
    return taken


def table(layers: list[Layer], libraries: list[Library], rows: list[int], repeats: int, threads: int) -> Iterator[str]:
    yield " rows format  median ms  p10 ms   GB/s of reads   GOP/s of int8's peak"
    peak = limits(threads)["int8_gop_s"]
    for count in rows:
        for layer in layers:
            bandwidth = [read_bandwidth(threads)]
            taken = measured(layer, libraries, count, repeats, threads)
            bandwidth.append(read_bandwidth(threads))
            for library, own in zip(libraries, taken, strict=True):
                rates = [read / seconds / 1e9 for read, seconds in zip(own.num_bytes, own.seconds, strict=True)]
                rate, seconds = statistics.median(rates), sorted(own.seconds)
                median = seconds[len(seconds) // 2]
                work = 2 * 3 * HIDDEN * WIDTH * TOP_K * count / median / 1e9
                yield (
                    f"{count:>5} {layer.kind:>6} {median * 1e3:>9.3f} {seconds[len(seconds) // 10] * 1e3:>8.3f} "
                    f"{rate:>6.1f} {rate / statistics.mean(bandwidth):>7.0%} {work:>7.0f} {work / peak:>7.0%}"
                    + (f"  {library.path.name}" if len(libraries) > 1 else "")
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=["int8", "int4"])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--group-size", type=int, default=DEFAULT_GROUP_SIZE)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--libraries", type=Path, nargs="+", help="files of libraries that take turns")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    packer = load()
    libraries = [Library(packer.variant, path) for path in given.libraries] if given.libraries else [packer]
    print(f"{processor()}, {given.threads} threads, {packer.variant}, load average {os.getloadavg()[0]:.1f}")
    packer.set_threads(given.threads)
    layers = [Layer.make(packer, kind, given.group_size, max(given.rows)) for kind in given.kinds]
    packer.set_threads(1)
    for line in table(layers, libraries, given.rows, given.repeats, given.threads):
        print(line, flush=True)


if __name__ == "__main__":
    main()
