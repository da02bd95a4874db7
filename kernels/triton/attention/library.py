"""Attention of prompts by a library's kernel, which reads keys and values where they are stored.

Such a kernel is written for one architecture. It computes a step's rows from the first prompt on, if the longest prompt
has enough tiles to fill a GPU. It is used only if it agrees with the formula on a small step, on the GPU in use and
with blocks of the memory's size.
"""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature

import torch
from torch import Tensor

from ...paged import DeviceRows, PagedKV
from ...reference.paged_attention import attention_paged
from ..launch.switches import LIBRARY_ATTENTION

_LOG = logging.getLogger(__name__)
_LEAST_QUERIES = 128 * 64  # of all heads: 64 tiles of the size that such kernels have
_LARGEST_HEAD = 256
_DEVICE, _TOLERANCE = "cuda", 3e-2
_FLASH_ATTENTION_3, _TORCH = "flash_attn_interface", "torch.nn.attention.varlen"

# Causal attention; the query is [tokens, heads, head_dim], then memory, rows, scale and window.
Attend = Callable[[Tensor, PagedKV, DeviceRows, float, int | None], Tensor]


def library_for(query: Tensor, kv: PagedKV, rows: DeviceRows) -> Attend | None:
    """Return the library to use for this step's prompts, if any."""
    if rows.max_queries * query.shape[1] < _LEAST_QUERIES or kv.keys.dtype != query.dtype:
        return None
    return library(query.device, query.dtype, kv.head_dim, kv.block_size)


@cache
def library(device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> Attend | None:
    """Return the first library that is installed and correct here."""
    is_known = dtype in (torch.float16, torch.bfloat16) and head_dim % 8 == 0 and head_dim <= _LARGEST_HEAD
    if device.type != _DEVICE or not is_known or not LIBRARY_ATTENTION.is_on:
        return None
    for name, attend in _libraries():
        try:
            if is_right(attend, device, dtype, head_dim, block_size):
                return attend
            _LOG.warning("attention by %s differs from the formula here; it is not used", name)
        except (AttributeError, ImportError, RuntimeError, TypeError, ValueError) as error:
            _LOG.warning("attention by %s is not used: %s", name, error)
    return None


def lack() -> str:
    """Return why no library attends to prompts here; "" if one may, which is checked for correctness on first use."""
    if not LIBRARY_ATTENTION.is_on:
        return f"{LIBRARY_ATTENTION.variable}=0 keeps libraries from attending to prompts."
    if find_spec(_FLASH_ATTENTION_3):
        return ""
    if find_spec(_TORCH) and _takes_blocks(import_module(_TORCH).varlen_attn):
        return ""
    return (
        f"torch {torch.__version__} has no attention that reads blocks of keys (varlen_attn with a block_table), and "
        f"FlashAttention 3 is not installed, so prompts take Penstock's own kernel; either makes long ones faster."
    )


def _takes_blocks(varlen_attn: Callable[..., object]) -> bool:
    return "block_table" in signature(varlen_attn).parameters


def _libraries() -> Iterator[tuple[str, Attend]]:
    """Yield the libraries with the names of their modules. A module is imported by the first call, which may raise.

    FlashAttention 2 is not among them, since its blocks have 256 tokens or a multiple. torch's function raises if it
    takes no block table yet, or if FlashAttention 3 or 4 has not been activated in it.
    """
    if find_spec(_FLASH_ATTENTION_3):
        yield _FLASH_ATTENTION_3, _by_flash_attention_3
    if find_spec(_TORCH):
        yield _TORCH, _by_torch


def _by_torch(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    return import_module(_TORCH).varlen_attn(
        query, kv.keys, kv.values, rows.query_starts, None, rows.max_queries, rows.max_context, scale=scale,
        window_size=(_before(window), 0), enable_gqa=True, seqused_k=rows.context_lengths,
        block_table=rows.block_tables,
    )  # fmt: skip


def _by_flash_attention_3(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    found = import_module(_FLASH_ATTENTION_3).flash_attn_with_kvcache(
        query, kv.keys, kv.values, cache_seqlens=rows.context_lengths, page_table=rows.block_tables,
        cu_seqlens_q=rows.query_starts, max_seqlen_q=rows.max_queries, softmax_scale=scale, causal=True,
        window_size=(_before(window), 0 if window else -1),
    )  # fmt: skip
    return found[0] if isinstance(found, tuple) else found


def _before(window: int | None) -> int:
    """Return how many keys a query sees before its own; -1 for all."""
    return -1 if window is None else window - 1


def is_right(attend: Attend, device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> bool:
    """Compare with the formula: query heads share key heads, one row has one query, and no row has the first query."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(14, 4, head_dim, generator=generator).to(device, dtype)
    keys, values = torch.randn(2, 6, block_size, 2, head_dim, generator=generator).to(device, dtype)
    contexts = (block_size + 3, 5, 2 * block_size)
    columns = ([1, 4, 5, 13], contexts, [[4, 1], [2, 0], [5, 3]])
    starts, lengths, tables = (torch.tensor(numbers, dtype=torch.int32, device=device) for numbers in columns)
    rows = DeviceRows(starts, lengths, tables, starts.new_empty(0), max_queries=8, max_context=2 * block_size)
    for window in (None, 2):
        inputs = (query, PagedKV(keys, values), rows, head_dim**-0.5, window)
        found, expected = attend(*inputs)[1:13], attention_paged.reference(*inputs)[1:13]
        if not torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            return False
    return True
