"""The speed of products with packed weights, next to memory's speed and the units' peak.

The formats are int8 and int4, the floats fp32, fp16 and bf16, and ggml's blocks (q4_k, q6_k, …) with random contents.
The shapes are Qwen3-0.6B's layers (440 M weights in 28; fewer are held, more together than a cache takes, and times are
scaled) or, with `--head`, its output head. Formats take turns; limits are probed in between, for memory's speed drifts.
`--load-weights` quantizes and packs a model's weights instead.

    scripts/benchmark products --rows 512 --libraries before.so after.so       # two builds in turns

Times are those of the clock, so other work counts; with one thread they are the thread's own.
"""

import time
from collections.abc import Callable, Iterator
from ctypes import addressof, c_int32
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy
import torch
from torch import Tensor

from penstock.kernels.cpu.layer import QuantizedRows, linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.structs import Linear, Quantize
from penstock.kernels.cpu.weights.blocks import pack_blocks
from penstock.kernels.cpu.weights.packed import BLOCK_KINDS, DEFAULT_GROUP_SIZE, Kind, NativeWeight, empty, pack
from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.stored.ggml_blocks import TYPES
from penstock.kernels.torch.arrays import array_of

from ..harness import alternated, median
from ..machine import limits, with_bandwidth

MODEL_LAYERS = 28
LAYER = ((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072))  # qkv, o, gate and up, down: (out, in)
HEAD = ((151_936, 1024),)
ROWS = (*range(1, 17), 24, 32, 48, 64, 128, 256, 512)
SOURCE_DTYPE = torch.bfloat16
FLOATS = ("fp32", "fp16", "bf16")


def run(
    kinds: tuple[str, ...] = ("int8", "int4"), rows: tuple[int, ...] = ROWS, group_size: int = DEFAULT_GROUP_SIZE,
    threads: int = 2, layers: int = 8, repeats: int = 15, head: bool = False, load_weights: bool = False,
    libraries: tuple[str, ...] = (),
) -> None:  # fmt: skip
    torch.set_num_threads(1)
    library = load()
    loaded = {Path(path).stem: Library(path, Path(path)) for path in libraries} or {"": library}
    for each in loaded.values():
        each.set_threads(threads)
    print(f"{library.variant}, {threads} threads")
    if load_weights:
        lines = loading(list(kinds), group_size)
    else:
        shapes = list(HEAD) if head else list(LAYER) * layers
        scale = 1.0 if head else MODEL_LAYERS / layers
        made = [Products.make(library, kind, group_size, shapes, max(rows)) for kind in kinds]
        lines = table(made, loaded, list(rows), repeats, threads, scale)
    for line in lines:
        print(line, flush=True)


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
            quantized = None if kind in FLOATS else integers.structure()
            output = outputs[shape]
            arguments = linear_arguments(addressof(num_rows), floats, quantized, weight, None, array_of(output))
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

    def seconds(self, rows: int, library: Library, clock: Callable[[], float]) -> float:
        self.num_rows.value = rows
        function = library.function(f"penstock_linear_{'blocks' if self.kind in BLOCK_KINDS else self.kind}")
        start = clock()
        for address, _ in self.calls:
            function(address)
        return clock() - start

    def peak(self, threads: int) -> float | None:
        """The units' peak, in 1e9 operations a second."""
        if self.kind not in FLOATS:
            return limits(threads)["int8_gop_s"]
        has_short = self.kind == "bf16" and self.library.variant in ("amx", "avx512_bf16")
        return limits(threads)["bfloat16_gflop_s" if has_short else "float32_gflop_s"]


def _random(shape: tuple[int, int], kind: Kind, group_size: int) -> NativeWeight:
    if kind not in BLOCK_KINDS:
        return pack([array_of(torch.randn(shape).to(SOURCE_DTYPE))], kind, group_size)
    (rows, inputs), type = shape, TYPES[kind.upper()]
    octets = numpy.random.default_rng(0).integers(0, 256, (rows, inputs // type.block * type.nbytes), numpy.uint8)
    return pack_blocks([GgmlPart(kind.upper(), octets)])


def _copy(weight: NativeWeight) -> NativeWeight:
    """A copy in memory of its own, so that no cache serves two layers."""
    copy = empty(weight.kind, weight.out_features, weight.in_features, weight.group_size, weight.has_zeros)
    copy.data[:] = weight.data
    return copy


def table(
    products: list[Products], libraries: dict[str, Library], rows: list[int], repeats: int, threads: int, scale: float
) -> Iterator[str]:
    yield " rows format  median ms  best ms   GB/s of reads  GOP/s of peak"
    peaks = {one.kind: one.peak(threads) for one in products}
    clock = time.thread_time if threads == 1 else time.perf_counter
    for count in rows:
        variants = {
            f"{one.kind} {name}": partial(one.seconds, count, library, clock)
            for one in products
            for name, library in libraries.items()
        }
        times, bandwidth = with_bandwidth(threads, partial(alternated, variants, repeats))
        for one, name in ((one, name) for one in products for name in libraries):
            taken, peak = times[f"{one.kind} {name}"], peaks[one.kind]
            middle, best = median(taken), min(taken)
            rate, work = one.num_bytes / middle / 1e9, 2 * one.num_weights * count / middle / 1e9
            yield (
                f"{count:>5} {one.kind:>6} {middle * scale * 1e3:>10.2f} {best * scale * 1e3:>8.2f} {rate:>6.1f} "
                f"{rate / bandwidth:>8.0%} {work:>6.0f} {f'{work / peak:.0%}' if peak else '-':>7} {name}".rstrip()
            )


def loading(kinds: list[Kind], group_size: int) -> Iterator[str]:
    """Quantizing and packing all layers' weights, and the head's."""
    source = {shape: array_of(torch.randn(shape).to(SOURCE_DTYPE)) for shape in {*LAYER, *HEAD}}
    every = (*LAYER * MODEL_LAYERS, *HEAD)
    weights = sum(rows * inputs for rows, inputs in every)
    for kind in kinds:
        start = time.perf_counter()
        packed = sum(pack([source[shape]], kind, group_size).nbytes for shape in every)
        seconds = time.perf_counter() - start
        yield f"{kind}: {weights / 1e6:.0f} M weights packed into {packed / 1e6:.0f} MB in {seconds:.2f} s"
