"""Attention of prompts by a library's kernel (FlashAttention), on keys and values copied out of packed memory.

Such a kernel is written for one architecture, and knows no packed memory. It serves a step whose longest prompt fills a
card with tiles, and whose prompts' contexts fit into a bounded memory: it sees the rows from the first prompt on, and
of answers between them no key. Of a library nothing is believed: it is used where it
agrees with the formula on a small step, on the card in use. Knows nothing of which way is faster.
"""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...paged import DeviceRows, PagedKV
from ..switches import LIBRARY_ATTENTION
from ..tuning import architecture
from .plain_memory import kept_at_most, plain_memory

_LOG = logging.getLogger(__name__)
_BYTES = 256 << 20  # of plain keys and values
_LEAST_QUERIES = 128 * 64  # of all heads: 64 tiles of the size that such kernels have
_LARGEST_HEAD = 256
_DEVICE, _TOLERANCE = "cuda", 3e-2


class Lengths(NamedTuple):
    """Where the rows' queries and keys begin, and how many a row has at most. The queries are the last of the keys."""

    query_starts: Tensor  # int32 [R + 1]
    key_starts: Tensor
    max_queries: int
    max_keys: int


# From query, keys and values, each [tokens, heads, head_dim], lengths, scale and window; causal.
Attend = Callable[[Tensor, Tensor, Tensor, Lengths, float, int | None], Tensor]


def serves(query: Tensor, kv: PagedKV, rows: DeviceRows, window: int | None) -> bool:
    num_bytes = kept_at_most(rows, window).all_rows * 2 * kv.num_heads * kv.head_dim * query.element_size()
    return rows.max_queries * query.shape[1] >= _LEAST_QUERIES and num_bytes <= _BYTES


def attend_by_library(
    attend: Attend, query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None, least_queries: int
) -> Tensor:
    """The output; of rows with fewer queries than `least_queries` it is anything."""
    rows, at_most = rows.from_first_prompt(), kept_at_most(rows, window)
    # As large whatever the step, so that the first steps show what later ones take.
    room = torch.empty(2, _BYTES // 2 // query.element_size(), dtype=query.dtype, device=query.device)
    shape = (at_most.all_rows, kv.num_heads, kv.head_dim)
    keys, values = room[:, : prod(shape)].unflatten(1, shape)
    starts = plain_memory(kv, rows, window, least_queries, keys, values)
    lengths = Lengths(rows.query_starts, starts, rows.max_queries, at_most.a_row)
    return attend(query, keys, values, lengths, scale, window)


@cache
def library(device: torch.device, dtype: torch.dtype, head_dim: int) -> Attend | None:
    """The first one that is there and right."""
    is_known = dtype in (torch.float16, torch.bfloat16) and head_dim % 8 == 0 and head_dim <= _LARGEST_HEAD
    if device.type != _DEVICE or not is_known or not LIBRARY_ATTENTION.is_on:
        return None
    for name, attend in _libraries():
        try:
            if is_right(attend, device, dtype, head_dim):
                return attend
            _LOG.warning("attention by %s differs from the formula here; it is not used", name)
        except (AttributeError, ImportError, RuntimeError, TypeError, ValueError) as error:
            _LOG.warning("attention by %s is not used: %s", name, error)
    return None


def _libraries() -> Iterator[tuple[str, Attend]]:
    """By the names of their modules, the fastest first. They are imported when they are called: there it may fail."""
    if 90 <= architecture() < 100 and find_spec("flash_attn_interface"):  # FlashAttention 3 is for Hopper
        yield "flash_attn_interface", _of_package("flash_attn_interface")
    if find_spec("torch.nn.attention.varlen"):
        yield "torch.nn.attention.varlen", _of_torch
    if find_spec("flash_attn"):
        yield "flash_attn", _of_package("flash_attn")


def _of_torch(
    query: Tensor, keys: Tensor, values: Tensor, lengths: Lengths, scale: float, window: int | None
) -> Tensor:
    function = import_module("torch.nn.attention.varlen").varlen_attn
    # Versions of torch differ in whether heads that are shared have to be asked for.
    named = {"enable_gqa": True} if "enable_gqa" in _parameters(function) else {}
    reach = (-1 if window is None else window - 1, 0)
    return function(query, keys, values, *lengths, scale=scale, window_size=reach, **named)


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(function).parameters)


def _of_package(name: str) -> Attend:
    def attend(
        query: Tensor, keys: Tensor, values: Tensor, lengths: Lengths, scale: float, window: int | None
    ) -> Tensor:
        named: dict[str, Any] = dict(
            zip(("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"), lengths, strict=True)
        )
        reach = (-1 if window is None else window - 1, 0 if window else -1)
        function = import_module(name).flash_attn_varlen_func
        found = function(query, keys, values, **named, softmax_scale=scale, causal=True, window_size=reach)
        return found[0] if isinstance(found, tuple) else found

    return attend


def is_right(attend: Attend, device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether it gives what the formula does: heads are shared, a row has no keys, the first query is nobody's."""
    generator = torch.Generator().manual_seed(0)
    query, keys, values = torch.randn(3, 10, 4, head_dim, generator=generator).to(device, dtype).unbind()
    keys, values = keys[:, :2].contiguous(), values[:, :2].contiguous()
    starts = torch.tensor([[1, 4, 5, 7], [0, 5, 5, 7]], dtype=torch.int32, device=device)
    lengths = Lengths(*starts, 3, 5)
    is_meant = torch.tensor([1, 2, 3, 5, 6], device=device)
    for window in (None, 2):
        inputs = (query, keys, values, lengths, head_dim**-0.5, window)
        found, expected = attend(*inputs)[is_meant], formula(*inputs)[is_meant]
        if not torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            return False
    return True


def formula(query: Tensor, keys: Tensor, values: Tensor, lengths: Lengths, scale: float, window: int | None) -> Tensor:
    """What a library is to compute, row by row; zeros where a row has no keys."""
    output = torch.zeros_like(query)
    starts = torch.stack((lengths.query_starts, lengths.key_starts), 1).tolist()
    for (begin, seen_from), (end, seen_to) in pairwise(starts):
        if end > begin and seen_to > seen_from:
            positions = torch.arange(seen_to - seen_from, device=query.device)
            own = positions[begin - end :, None]
            is_seen = (positions <= own) & (positions > own - (window or len(positions)))
            of_row = (query[begin:end], keys[seen_from:seen_to], values[seen_from:seen_to])
            q, k, v = (found.transpose(0, 1).float() for found in of_row)
            attended = F.scaled_dot_product_attention(q, k, v, is_seen, scale=scale, enable_gqa=True)
            output[begin:end] = attended.transpose(0, 1).to(query.dtype)
    return output
