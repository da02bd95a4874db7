"""What happens to rows between products, and at a step's end: norms, activation, heads, the choice of a token.

By bytes that each must read and write. Tensors are so many that no cache holds them.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from penstock.kernels import HeadLayout
from penstock.kernels.paged import Rotation

from .kernels import filled_memory, layer_bytes, steps_rows, version
from .setting import Figure, Part, Setting

_ROWS = (256, 8192)
_LONGEST_PROMPT = 1024


def parts(setting: Setting) -> Iterator[Part]:
    for rows in _ROWS[: setting.sized(2, 1)]:
        rows = setting.sized(rows, 3)
        yield Part(f"add and norm, {rows:,} rows", partial(_add_norm, setting, rows))
        yield Part(f"silu and multiply, {rows:,} rows", partial(_silu, setting, rows))
        yield Part(f"heads made ready and stored, {rows:,} tokens", partial(_store, setting, rows))
    for choice, (kind, top_p) in {"greedy": (0, 1.0), "top_p": (2, 0.9), "of all": (3, 1.0)}.items():
        yield Part(f"choice, {choice}", partial(_choice, setting, choice, kind, top_p))


def _figure(setting: Setting, name: str, num_bytes: int, make: Callable[[], Callable[[], object]]) -> Figure:
    """`make` gives one call with tensors of its own, which touches so many bytes."""
    return setting.bytes_figure(name, num_bytes, setting.clock().seconds(setting.calls(num_bytes, make)))


def _random(setting: Setting, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=setting.device)


def _add_norm(setting: Setting, rows: int) -> Iterator[Figure]:
    add_norm, width = version("add_rms_norm"), setting.sized(4096, 64)
    weight = _random(setting, width)

    def call() -> Callable[[], object]:
        return partial(add_norm, _random(setting, rows, width), _random(setting, rows, width), weight, 1e-6)

    yield _figure(setting, f"add and norm, {rows:,} rows", 4 * 2 * rows * width, call)


def _silu(setting: Setting, rows: int) -> Iterator[Figure]:
    gate, width = version("gate"), setting.sized(12288, 64)

    def call() -> Callable[[], object]:
        return partial(gate, _random(setting, rows, 2 * width), "silu")

    yield _figure(setting, f"silu and multiply, {rows:,} rows", 3 * 2 * rows * width, call)


def _store(setting: Setting, tokens: int) -> Iterator[Figure]:
    store, (queries, keys, length) = version("store_heads_paged"), setting.sized((32, 8, 128), (4, 2, 32))
    norms = (_random(setting, length), _random(setting, length))
    form = HeadLayout(queries, keys, length, rotates_pairs=False, norms=norms, epsilon=1e-6)
    # Many tokens are those of prompts, few those of answers.
    context = setting.sized(_LONGEST_PROMPT, 32)
    queries_a_row = context if tokens > context else 1
    step = steps_rows([context] * (tokens // queries_a_row), queries_a_row, setting.device)
    angles = torch.rand(context, length, device=setting.device)
    positions = torch.arange(context - queries_a_row, context, device=setting.device).repeat(step.num_rows)
    rotation = Rotation(angles.cos(), angles.sin(), positions)
    kv = filled_memory(step.num_rows * context, keys, length, "bf16", setting.device).of_layer(0)

    def call() -> Callable[[], object]:
        return partial(store, _random(setting, tokens, (queries + 2 * keys) * length), form, rotation, kv, step)

    num_bytes = 2 * tokens * (2 * queries + 2 * keys) * length + int(layer_bytes(tokens, keys, length, "bf16"))
    yield _figure(setting, f"heads made ready and stored, {tokens:,} tokens", num_bytes, call)


def _choice(setting: Setting, choice: str, kind: int, top_p: float) -> Iterator[Figure]:
    from penstock.kernels.sampling import BEST, DeviceDraws

    choose, (rows, width) = version("choose_on_device"), setting.sized((256, 151_936), (3, 515))
    reals = torch.tensor([[0.8], [top_p], [0.0]], device=setting.device).expand(3, rows).contiguous()
    whole = torch.arange(rows, device=setting.device)
    histories = torch.zeros(rows, rows, dtype=torch.int32, device=setting.device)
    wholes = torch.stack((whole + 20, whole, whole))
    draws = DeviceDraws(torch.full_like(whole, kind), reals, wholes, histories, whole, whole, are_best=kind == BEST)

    def call() -> Callable[[], object]:
        return partial(choose, 3 * _random(setting, rows, width, dtype=torch.float32), draws)

    yield _figure(setting, f"choice, {choice}, {rows} × {width:,}", 4 * rows * width, call)
