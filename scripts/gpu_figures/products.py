"""The products of one layer of an 8B model, in every format: few rows by bytes of weights, many by operations.

There are two layers, so that what one reads is not in the cache from the round before.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from bench_models import SHAPES
from torch import Tensor

from .kernels import version
from .setting import Figure, Part, Setting
from .work import WEIGHT_BYTES, Work

# The operation, and how its weights are kept.
_FORMS = {
    "bf16": ("linear_gpu", "bf16", 0),
    "bf16, invariant": ("linear_gpu_invariant", "bf16", 0),
    "int8": ("linear_int8", "int8", 0),
    "wint8": ("linear_wint8", "int8", 0),
    "int4": ("linear_wint4", "int4", 64),
}
_FEW_ROWS, _MANY_ROWS = (1, 16), (256, 4096)
_LAYERS = 2


def parts(setting: Setting) -> Iterator[Part]:
    for form in _FORMS:
        yield Part(f"products of a layer, {form}", partial(_of_form, setting, form))


def _of_form(setting: Setting, form: str) -> Iterator[Figure]:
    from penstock.kernels import WeightForm
    from penstock.kernels.triton.weights import pack

    op, kind, group_size = _FORMS[form]
    multiply, device = version(op), torch.device(setting.device)
    shapes = setting.sized(list(Work.of(SHAPES["8b"]).products.values()), [(70, 64), (33, 96)]) * _LAYERS
    weights = [pack([_random(shape, device) * 0.02], WeightForm(kind, group_size), device) for shape in shapes]
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


def _random(shape: tuple[int, int], device: torch.device) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=device)
