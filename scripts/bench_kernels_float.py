"""How fast products with float weights are, beside torch's own and beside what memory and units allow.

    python scripts/bench_kernels_float.py                          # fp32, fp16 and bf16, 2 threads
    python scripts/bench_kernels_float.py --kinds bf16 --rows 1 16

A pass is all projections of some layers of Qwen3-0.6B's shape, more than any cache holds. Native passes and torch's
alternate; limits are probed before and between, for memory's speed drifts.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from ctypes import addressof, c_int32
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from bench_harness import Company, machine
from machine_limits import limits, read_bandwidth
from torch import Tensor

from penstock.kernels.cpu.layer import linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.weights.packed import Kind, pack

PROJECTIONS = {"qkv": (4096, 1024), "o": (1024, 2048), "gate_up": (6144, 1024), "down": (1024, 3072)}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LAYER_WEIGHTS = sum(out_features * in_features for out_features, in_features in PROJECTIONS.values())
BANDWIDTH_ROWS = 4  # up to here memory sets the pace


@dataclass
class NativePass:
    """All products once, each with memory of its own."""

    function: Callable[[int], None]
    addresses: list[int]
    kept: list[object]  # what the addresses lead to

    @classmethod
    def of(cls, library: Library, weights: list[Tensor], kind: Kind, num_rows: int) -> "NativePass":
        count, made = c_int32(num_rows), cls(library.function(f"penstock_linear_{kind}"), [], [])
        for weight in weights:
            x, output = torch.randn(num_rows, weight.shape[1]), torch.empty(num_rows, weight.shape[0])
            packed = pack([weight], kind)
            arguments = linear_arguments(addressof(count), x, None, packed, None, output)
            made.addresses.append(addressof(arguments))
            made.kept += [arguments, x, output, packed, count]
        return made

    def __call__(self) -> None:
        for address in self.addresses:
            self.function(address)


@dataclass
class TorchPass:
    """The same products in the weights' own number format."""

    weights: list[Tensor]
    inputs: list[Tensor]

    @classmethod
    def of(cls, weights: list[Tensor], num_rows: int) -> "TorchPass":
        return cls(weights, [torch.randn(num_rows, weight.shape[1]).to(weight.dtype) for weight in weights])

    def __call__(self) -> None:
        for x, weight in zip(self.inputs, self.weights, strict=True):
            F.linear(x, weight)


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(native: Callable[[], None], other: Callable[[], None], threads: int, rounds: int) -> dict[str, float]:
    """Medians of alternated passes, and of the read bandwidth between them in GB/s."""
    times: dict[str, list[float]] = {"native": [], "torch": [], "bandwidth": []}
    native(), other()
    for _ in range(rounds):
        times["native"].append(seconds(native))
        times["torch"].append(seconds(other))
        times["bandwidth"].append(read_bandwidth(threads))
    return {name: statistics.median(values) for name, values in times.items()}


def row(kind: str, num_rows: int, num_layers: int, found: dict[str, float], peaks: dict[str, float]) -> str:
    num_bytes = num_layers * LAYER_WEIGHTS * DTYPES[kind].itemsize
    rate, operations = num_bytes / found["native"] / 1e9, 2e-9 * num_layers * LAYER_WEIGHTS * num_rows / found["native"]
    if num_rows <= BANDWIDTH_ROWS:
        share = f"{rate:5.1f} GB/s = {rate / found['bandwidth']:4.0%} of {found['bandwidth']:.1f}"
    else:
        share = f"{operations:5.0f} GFLOP/s = {operations / peaks[kind]:4.0%} of {peaks[kind]:.0f}"
    ratio = found["torch"] / found["native"]
    return (
        f"| {kind} | {num_rows} | {1e3 * found['native']:.2f} ms | {1e3 * found['torch']:.2f} ms | {ratio:.2f} × "
        f"| {share} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 4, 8, 16, 64, 256, 512])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variant")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    library = load(options.variant)
    library.set_threads(options.threads)
    limit = limits(options.threads)
    peaks = dict.fromkeys(DTYPES, limit["float32_gflop_s"])
    if library.variant in ("amx", "avx512_bf16"):
        peaks["bf16"] = limit["bfloat16_gflop_s"]
    about = machine()
    print(f"{about['processor']}, {library.variant}, {options.threads} threads, {options.layers} layers a pass\n")
    print("| weights | rows | native | torch | ratio | native's share |\n| --- | --- | --- | --- | --- | --- |")
    with Company() as company:
        for kind in options.kinds:
            weights = [
                torch.randn(shape).to(DTYPES[kind]) for _ in range(options.layers) for shape in PROJECTIONS.values()
            ]
            for num_rows in options.rows:
                native, other = NativePass.of(library, weights, kind, num_rows), TorchPass.of(weights, num_rows)
                found = measure(native, other, options.threads, options.rounds)
                print(row(kind, num_rows, options.layers, found, peaks), flush=True)
    print(f"\n{company}")


if __name__ == "__main__":
    main()
