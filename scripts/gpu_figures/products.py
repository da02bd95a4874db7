"""The products of one layer of an 8B model, in every format: few rows by bytes of weights, many by operations.

A decode step's are timed a second time with what a layer does around them: norms before, sums and gates after.

There are two layers, so that what one reads is not in the cache from the round before.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy
import torch
from bench.models import SHAPES
from torch import Tensor

from .kernels import version
from .setting import Figure, Part, Setting
from .torch_products import TORCHS, TorchProduct
from .work import WEIGHT_BYTES, Work

# The operation, and how its weights are kept.
_FORMS = {
    "bf16": ("linear_gpu", "bf16", 0),
    "bf16, invariant": ("linear_gpu_invariant", "bf16", 0),
    "int8": ("linear_int8", "int8", 0),
    "wint8": ("linear_wint8", "int8", 0),
    "int4": ("linear_wint4", "int4", 64),
    "q4_k": ("linear_blocks", "q4_k", 0),
    "q6_k": ("linear_blocks", "q6_k", 0),
}
_FEW_ROWS_FORMS = {"bf16": ("bf16", 0), "wint8": ("int8", 0), "int4": ("int4", 64), "q4_k": ("q4_k", 0)}
_FEW_ROWS, _MANY_ROWS = (1, 16), (256, 4096)
_LAYERS = 2


def parts(setting: Setting) -> Iterator[Part]:
    for form in _FORMS:
        yield Part(f"products of a layer, {form}", partial(_of_form, setting, form))
    for form in _FEW_ROWS_FORMS:
        name = f"products of a layer with their norms, sums and gate, {form}"
        yield Part(name, partial(_with_their_surroundings, setting, form))
    for form, product in TORCHS.items():
        yield Part(f"torch's products of a layer, {form}", partial(_by_torch, setting, form, product))


def _by_torch(setting: Setting, form: str, product: TorchProduct) -> Iterator[Figure]:
    """Of the same shapes, by what torch itself has."""
    device = torch.device(setting.device)
    shapes = setting.sized(list(Work.of(SHAPES["8b"]).products.values()), [(64, 64), (32, 128)]) * _LAYERS
    num_weights = sum(outputs * inputs for outputs, inputs in shapes) / _LAYERS
    made = [product.packed(_random(shape, device) * 0.02) for shape in shapes]
    for rows in (*_FEW_ROWS, *_MANY_ROWS)[: setting.sized(None, 3)]:
        if rows < product.least_rows:
            continue
        calls = [
            partial(product.multiply, product.rows(_random((rows, inputs), device)), packed)
            for (_, inputs), packed in zip(shapes, made, strict=True)
        ]
        seconds = setting.clock().seconds(calls) * len(calls) / _LAYERS
        name = f"torch's products of a layer, {form}, {rows:,} rows"
        if rows in _FEW_ROWS:
            yield setting.bytes_figure(name, num_weights * WEIGHT_BYTES[form], seconds)
        else:
            yield setting.operations_figure(name, 2 * num_weights * rows, seconds)


def _of_form(setting: Setting, form: str) -> Iterator[Figure]:
    op, kind, group_size = _FORMS[form]
    multiply, device = version(op), torch.device(setting.device)
    shapes = setting.sized(list(Work.of(SHAPES["8b"]).products.values()), [(70, 256), (33, 256)]) * _LAYERS
    weights = [_packed(kind, group_size, shape, device) for shape in shapes]
    num_weights = sum(outputs * inputs for outputs, inputs in shapes) / _LAYERS
    for rows in (*_FEW_ROWS, *_MANY_ROWS)[: setting.sized(None, 2)]:
        calls: list[Callable[[], Tensor]] = [
            partial(multiply, _random((rows, weight.in_features), device), weight, None) for weight in weights
        ]
        seconds = setting.clock().seconds(calls) * len(calls) / _LAYERS
        name = f"products of a layer, {form}, {rows:,} rows"
        if rows in _FEW_ROWS:
            yield setting.bytes_figure(name, num_weights * WEIGHT_BYTES[kind], seconds)
        else:
            yield setting.operations_figure(name, 2 * num_weights * rows, seconds)


def _with_their_surroundings(setting: Setting, form: str) -> Iterator[Figure]:
    from penstock.kernels.operands import Norm

    kind, group_size = _FEW_ROWS_FORMS[form]
    multiply, device = version("linear_few_rows"), torch.device(setting.device)
    small = {"qkv": (70, 256), "o": (64, 256), "gate, up": (80, 256), "down": (64, 256)}
    shapes = setting.sized(Work.of(SHAPES["8b"]).products, small)
    weights = {
        name: [_packed(kind, group_size, shape, device) for _ in range(_LAYERS)] for name, shape in shapes.items()
    }
    num_weights = sum(outputs * inputs for outputs, inputs in shapes.values())
    for rows in (1, 8, 16)[: setting.sized(None, 1)]:
        calls: list[Callable[[], Tensor]] = []
        for layer in range(_LAYERS):
            for name, (outputs, inputs) in shapes.items():
                x, is_inner = _random((rows, inputs), device), name in ("o", "down")
                norm = None if is_inner else Norm(_random((1, inputs), device)[0], 1e-6)
                stream = _random((rows, outputs), device) if is_inner else None
                calls.append(partial(multiply, x, weights[name][layer], None, norm, stream, name == "gate, up"))
        seconds = setting.clock().seconds(calls) * len(calls) / _LAYERS
        name = f"products of a layer with their norms, sums and gate, {form}, {rows:,} rows"
        yield setting.bytes_figure(name, num_weights * WEIGHT_BYTES[kind], seconds)


def _packed(kind: str, group_size: int, shape: tuple[int, int], device: torch.device) -> Any:
    """Of random numbers, or of a GGUF file's blocks with random contents, whose time doesn't hang on what they are."""
    from penstock.kernels import WeightFormat
    from penstock.kernels.stored.ggml import GgmlPart
    from penstock.kernels.stored.ggml_blocks import TYPES
    from penstock.kernels.torch.packed.gpu_blocks import pack_blocks
    from penstock.kernels.torch.packed.gpu_weights import pack

    if kind.upper() not in TYPES:
        return pack([_random(shape, device) * 0.02], WeightFormat(kind, group_size), device)
    block, nbytes, _ = TYPES[kind.upper()]
    octets = numpy.random.default_rng(0).integers(0, 256, (shape[0], shape[1] // block * nbytes), numpy.uint8)
    return pack_blocks([GgmlPart(kind.upper(), octets)], device)


def _random(shape: tuple[int, int], device: torch.device) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=device)
