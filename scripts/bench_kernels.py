"""How near products with packed weights come to memory's speed and to the units' peak.

    python scripts/bench_kernels.py                             # int8 and int4, 1 to 512 rows, 2 threads
    python scripts/bench_kernels.py --kinds int4 --rows 1 2 3   # of some formats and some numbers of rows only
    python scripts/bench_kernels.py --kinds q4_k q6_k           # ggml's blocks, with random contents
    python scripts/bench_kernels.py --load                      # quantizing and packing a model's weights instead

The shapes are Qwen3-0.6B's layers (440 M weights in 28; fewer are held, more together than a cache takes, and times are
scaled) or, with `--head`, its output head. Formats take turns; limits are probed in between, for memory's speed drifts.
Attention has `bench_kernels_attention.py`.
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
from machine_limits import limits, read_bandwidth
from torch import Tensor

from penstock.kernels.cpu.layer import QuantizedRows, linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.structs import Linear, Quantize
from penstock.kernels.cpu.weights.blocks import pack_blocks
from penstock.kernels.cpu.weights.packed import BLOCK_KINDS, DEFAULT_GROUP_SIZE, Kind, NativeWeight, empty, pack
from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.stored.ggml_blocks import TYPES

MODEL_LAYERS = 28
LAYER = ((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072))  # qkv, o, gate and up, down: (out, in)
HEAD = ((151_936, 1024),)
ROWS = (*range(1, 17), 24, 32, 48, 64, 128, 256, 512)
SOURCE_DTYPE = torch.bfloat16
INTEGERS = ("int8", "int4")


@dataclass
class Products:
    """All products of some layers in one format, with inputs and outputs for the largest number of rows."""

    library: Library
    kind: Kind
    calls: list[tuple[int, Linear]]  # address of the function's arguments, and the arguments
    num_rows: c_int32
    num_bytes: int
    num_weights: int
    kept: list[object]  # what the arguments point to

    @classmethod
    def make(
        cls, library: Library, kind: Kind, group_size: int, layers: list[tuple[int, int]], rows: int
    ) -> "Products":
        num_rows = c_int32(rows)
        made = cls(library, kind, [], num_rows, 0, 0, [])
        packed: dict[tuple[int, int], NativeWeight] = {}
        group = BLOCK_KINDS[kind].inputs if kind in BLOCK_KINDS else 0
        inputs = {inner: made.input_rows(rows, inner, group) for _, inner in layers}
        outputs = {shape: torch.empty(rows, shape[0]) for shape in layers}  # shared by the layers, as in a model
        for shape in layers:
            if shape not in packed:
                packed[shape] = _random(shape, kind, group_size)
            weight = _copy(packed[shape])
            floats, integers = inputs[shape[1]]
            output = outputs[shape]
            arguments = linear_arguments(addressof(num_rows), floats, integers.structure(), weight, None, output)
            made.calls.append((addressof(arguments), arguments))
            made.kept += [weight, floats, integers, output]
            made.num_bytes += weight.nbytes
            made.num_weights += shape[0] * shape[1]
        return made

    def input_rows(self, rows: int, features: int, group: int) -> tuple[Tensor, QuantizedRows]:
        floats, integers = torch.randn(rows, features), QuantizedRows.empty(rows, features, group)
        structure = integers.structure()
        self.library.call(
            "penstock_quantize", Quantize(addressof(self.num_rows), floats.data_ptr(), features, structure)
        )
        return floats, integers

    def seconds(self, rows: int) -> float:
        self.num_rows.value = rows
        function = self.library.function(f"penstock_linear_{'blocks' if self.kind in BLOCK_KINDS else self.kind}")
        start = time.perf_counter()
        for address, _ in self.calls:
            function(address)
        return time.perf_counter() - start


def _random(shape: tuple[int, int], kind: Kind, group_size: int) -> NativeWeight:
    if kind not in BLOCK_KINDS:
        return pack([torch.randn(shape).to(SOURCE_DTYPE)], kind, group_size)
    (rows, inputs), type = shape, TYPES[kind.upper()]
    octets = torch.randint(0, 256, (rows, inputs // type.block * type.nbytes), dtype=torch.uint8)
    return pack_blocks([GgmlPart(kind.upper(), octets)])


def _copy(weight: NativeWeight) -> NativeWeight:
    """Of its own memory, so that no cache serves two layers."""
    copy = empty(weight.kind, weight.out_features, weight.in_features, weight.group_size, weight.has_zeros)
    copy.data.copy_(weight.data)
    return copy


def processor() -> str:
    """The processor's name, and those of its features that matter here."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    values = {line.split(":")[0].strip(): line.partition(":")[2].strip() for line in lines if ":" in line}
    wanted = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")
    features = [name for name in wanted if name in values.get("flags", "").split()]
    return f"{values.get('model name', 'unknown processor')} ({' '.join(features)})"


def table(products: list[Products], rows: list[int], repeats: int, threads: int, scale: float) -> Iterator[str]:
    yield " rows format  median ms  best ms   GB/s of reads  GOP/s of peak"
    peak = limits(threads)["int8_gop_s"]
    for count in rows:
        times: dict[str, list[float]] = {one.kind: [] for one in products}
        bandwidth = [read_bandwidth(threads)]
        for _ in range(repeats):
            for one in products:
                times[one.kind].append(one.seconds(count))
        bandwidth.append(read_bandwidth(threads))
        for one in products:
            median, best = statistics.median(times[one.kind]), min(times[one.kind])
            rate, work = one.num_bytes / median / 1e9, 2 * one.num_weights * count / median / 1e9
            yield (
                f"{count:>5} {one.kind:>6} {median * scale * 1e3:>10.2f} {best * scale * 1e3:>8.2f} {rate:>6.1f} "
                f"{rate / statistics.mean(bandwidth):>8.0%} {work:>6.0f} {f'{work / peak:.0%}' if peak else '-':>7}"
            )


def loading(kinds: list[Kind], group_size: int) -> Iterator[str]:
    """Quantizing and packing all layers' weights, and the head's."""
    source = {shape: torch.randn(shape).to(SOURCE_DTYPE) for shape in {*LAYER, *HEAD}}
    for kind in kinds:
        start, weights = time.perf_counter(), 0
        kept = []
        for shape in (*LAYER * MODEL_LAYERS, *HEAD):
            kept.append(pack([source[shape]], kind, group_size))
            weights += shape[0] * shape[1]
        seconds, packed = time.perf_counter() - start, sum(one.nbytes for one in kept)
        yield f"{kind}: {weights / 1e6:.0f} M weights packed into {packed / 1e6:.0f} MB in {seconds:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(INTEGERS))
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--group-size", type=int, default=DEFAULT_GROUP_SIZE)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8, help="how many are held in memory")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--head", action="store_true", help="the output head instead of the layers")
    parser.add_argument("--load", action="store_true", help="packing instead of products")
    given = parser.parse_args()
    torch.set_num_threads(1)
    library = load()
    library.set_threads(given.threads)
    load_average = os.getloadavg()[0]
    print(f"{processor()}, {given.threads} threads, {library.variant}, load average {load_average:.1f}")
    if given.load:
        lines = loading(given.kinds, given.group_size)
    else:
        shapes = list(HEAD) if given.head else list(LAYER) * given.layers
        scale = 1.0 if given.head else MODEL_LAYERS / given.layers
        made = [Products.make(library, kind, given.group_size, shapes, max(given.rows)) for kind in given.kinds]
        lines = table(made, given.rows, given.repeats, given.threads, scale)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
