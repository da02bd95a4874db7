"""Attention alone, with the heads of an 8B model: answers by the bytes that they read, a prompt by its operations."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

from penstock.kernels.paged import DeviceRows, PagedKV

from .kernels import filled_memory, layer_bytes, steps_rows, version
from .setting import Figure, Part, Setting
from .work import attention_operations

_ANSWERS = ((64, 4096), (256, 1024), (1, 8192))  # rows, context
_KINDS = ("bf16", "int8")


def parts(setting: Setting) -> Iterator[Part]:
    for rows, context in _ANSWERS[: setting.sized(len(_ANSWERS), 1)]:
        for kind in _KINDS:
            name = f"attention, {rows} × {context:,}, {kind} KV"
            yield Part(name, partial(_answers, setting, name, rows, context, kind))
    for op in ("attention_paged", "attention_paged_invariant"):
        yield Part(f"{op}, a prompt of 8,192", partial(_prompt, setting, op))
    yield Part("attention by a library, a prompt of 8,192", partial(_by_library, setting))
    yield Part("torch's attention, a prompt of 8,192", partial(_prompt_by_torch, setting))
    for rows, context in _ANSWERS[: setting.sized(len(_ANSWERS), 1)]:
        name = f"torch's attention, {rows} × {context:,}, keys and values in place"
        yield Part(name, partial(_answers_by_torch, setting, name, rows, context))


def _heads(setting: Setting) -> tuple[int, int, int]:
    """Of queries, of keys, and their length."""
    return setting.sized((32, 8, 128), (4, 2, 64))


def _answers(setting: Setting, name: str, rows: int, context: int, kind: str) -> Iterator[Figure]:
    num_heads, num_kv_heads, head_dim = _heads(setting)
    rows, context = setting.sized((rows, context), (2, 64))
    attend = version("attention_paged")
    query = torch.randn(rows, num_heads, head_dim, device=setting.device).bfloat16()
    step = steps_rows([context] * rows, 1, setting.device)
    num_bytes = layer_bytes(rows * context, num_kv_heads, head_dim, kind) + 2 * query.nbytes

    def call() -> Callable[[], object]:
        kv = filled_memory(rows * context, num_kv_heads, head_dim, kind, setting.device).of_layer(0)
        return partial(attend, query, kv, step, head_dim**-0.5, None)

    yield setting.bytes_figure(name, num_bytes, setting.clock().seconds(setting.calls(num_bytes, call)))


def _prompt(setting: Setting, op: str) -> Iterator[Figure]:
    query, kv, step, operations = _prompts_step(setting)
    attend = version(op)
    seconds = setting.clock().seconds([lambda: attend(query, kv, step, query.shape[2] ** -0.5, None)] * 2)
    yield setting.operations_figure(f"{op}, a prompt of 8,192", operations, seconds)


def _by_library(setting: Setting) -> Iterator[Figure]:
    """Whatever tuning chose for the figure above; the formula stands in where there is no card."""
    from penstock.kernels.reference.paged_attention import attention_paged
    from penstock.kernels.triton.attention.library import library

    query, kv, step, operations = _prompts_step(setting)
    at_hand = library(query.device, query.dtype, kv.head_dim, kv.block_size)
    attend = attention_paged.reference if setting.device == "cpu" else at_hand
    if attend is not None:
        call = partial(attend, query, kv, step, query.shape[2] ** -0.5, None)
        seconds = setting.clock().seconds([call] * 2)
        yield setting.operations_figure("attention by a library, a prompt of 8,192", operations, seconds)


def _prompt_by_torch(setting: Setting) -> Iterator[Figure]:
    num_heads, num_kv_heads, head_dim = _heads(setting)
    length = setting.sized(8192, 96)
    shapes = [(1, heads, length, head_dim) for heads in (num_heads, num_kv_heads, num_kv_heads)]
    inputs = [torch.randn(shape, device=setting.device).bfloat16() for shape in shapes]
    attend = partial(F.scaled_dot_product_attention, *inputs, is_causal=True, enable_gqa=True)
    operations = attention_operations(num_heads, head_dim, length)
    yield setting.operations_figure(
        "torch's attention, a prompt of 8,192", operations, setting.clock().seconds([attend] * 2)
    )


def _answers_by_torch(setting: Setting, name: str, rows: int, context: int) -> Iterator[Figure]:
    num_heads, num_kv_heads, head_dim = _heads(setting)
    rows, context = setting.sized((rows, context), (2, 64))
    num_bytes = layer_bytes(rows * context, num_kv_heads, head_dim, "bf16")

    def call() -> Callable[[], object]:
        query = torch.randn(rows, num_heads, 1, head_dim, device=setting.device).bfloat16()
        keys, values = torch.randn(2, rows, num_kv_heads, context, head_dim, device=setting.device).bfloat16().unbind()
        return partial(F.scaled_dot_product_attention, query, keys, values, enable_gqa=True)

    yield setting.bytes_figure(name, num_bytes, setting.clock().seconds(setting.calls(num_bytes, call)))


def _prompts_step(setting: Setting) -> tuple[torch.Tensor, PagedKV, DeviceRows, float]:
    """Query, memory and rows of one long prompt, and its operations."""
    num_heads, num_kv_heads, head_dim = _heads(setting)
    length = setting.sized(8192, 96)
    kv = filled_memory(length, num_kv_heads, head_dim, "bf16", setting.device).of_layer(0)
    query = torch.randn(length, num_heads, head_dim, device=setting.device).bfloat16()
    step = steps_rows([length], length, setting.device)
    return query, kv, step, attention_operations(num_heads, head_dim, length)
