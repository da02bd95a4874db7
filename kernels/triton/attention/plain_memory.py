"""Keys and values of whole rows out of packed memory, as [tokens, heads, head_dim] that others' kernels read.

The rows lie one after another, without gaps; where each begins is found here as well, so nobody waits for the device.
Of a row whose queries see only the last tokens, those alone are there, and of rows with fewer queries than are meant,
none. Knows nothing of what is computed with them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...kv_layout import KV_FORMATS
from ...paged import DeviceRows, PagedKV
from ..compiled import Example
from ..packed_numbers import UINT4_ZERO, in_one, numbers
from .packed_memory import key_words, memory_of, scales_of, value_words

_TOKENS, _WARPS = 64, 8  # of a program
_ROWS_AT_ONCE = tl.constexpr(256)
_NUMBERS = {"fp32": torch.float32, "fp16": torch.float16}  # how they are read; others as words
# What differs from step to step, and where the step's rows begin: the kernel is not compiled anew for one of them.
_COUNTS = ["num_rows", "pieces_a_row", "least_queries", "window", "table_width"]
_ROWS = ["query_starts", "context_lengths", "block_tables"]


@triton.jit
def _kept(query_starts, context_lengths, rows, is_row, least_queries, window):
    """How many of their last tokens rows keep."""
    queries = tl.load(query_starts + rows + 1, mask=is_row, other=0) - tl.load(
        query_starts + rows, mask=is_row, other=0
    )
    context = tl.load(context_lengths + rows, mask=is_row, other=0)
    seen = tl.where(window > 0, tl.minimum(context, queries + window - 1), context)
    return tl.where(queries >= least_queries, seen, 0)


@triton.jit
def _start(query_starts, context_lengths, row, least_queries, window):
    """Tokens of all rows before this one."""
    start = row * 0
    for first in range(0, row, _ROWS_AT_ONCE):
        rows = first + tl.arange(0, _ROWS_AT_ONCE)
        start += tl.sum(_kept(query_starts, context_lengths, rows, rows < row, least_queries, window), 0)
    return start


@triton.jit
def _scaled(found, scales, memory, start, context, KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr):
    """Numbers [tokens, columns] as what they stand for."""
    if KIND == "int8" or KIND == "uint4":
        found = found.to(tl.float32)
        scale = scales_of(scales, memory, start, context, 0, KEYS, BLOCK_SIZE)[:, None]
        if KIND == "uint4":
            minimum = scales_of(scales, memory, start, context, 1, KEYS, BLOCK_SIZE)[:, None]
            found = (found - UINT4_ZERO) * scale + minimum
        else:
            found = found * scale
    return found


@triton.jit
def _keys(
    memory, start, context, TOKENS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr,
    PER_WORD: tl.constexpr,
):  # fmt: skip
    UNITS: tl.constexpr = triton.next_power_of_2(HEAD_DIM) // PER_WORD
    tokens = start + tl.arange(0, TOKENS)
    words = tl.trans(key_words(memory, tokens, context, UNITS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD))
    parts = (numbers(words, 0, KIND),)
    for place in tl.static_range(1, PER_WORD):
        parts = parts + (numbers(words, place, KIND),)
    whole = in_one(parts, PER_WORD)
    return _scaled(whole, memory.key_scales, memory, start, context, TOKENS, BLOCK_SIZE, KIND)


@triton.jit
def _values(
    memory, start, context, TOKENS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr,
    PER_WORD: tl.constexpr,
):  # fmt: skip
    words = tl.trans(value_words(memory, start, context, TOKENS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD))
    parts = (numbers(words, 0, KIND),)
    for place in tl.static_range(1, PER_WORD):
        parts = parts + (numbers(words, place, KIND),)
    whole = tl.trans(in_one(parts, PER_WORD))
    return _scaled(whole, memory.value_scales, memory, start, context, TOKENS, BLOCK_SIZE, KIND)


@triton.jit(do_not_specialize=_COUNTS + _ROWS)
def plain_memory_kernel(
    plain_keys, plain_values, starts, query_starts, context_lengths, block_tables, keys, values, key_scales,
    value_scales, table_width, stride, scale_stride, num_rows, pieces_a_row, least_queries, window,
    TOKENS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr, PER_WORD: tl.constexpr,
):  # fmt: skip
    """A program: one head of TOKENS neighbouring tokens of a row, of keys or of values."""
    row, piece, head = tl.program_id(0) // pieces_a_row, tl.program_id(0) % pieces_a_row, tl.program_id(1)
    kept = _kept(query_starts, context_lengths, row, row < num_rows, least_queries, window)
    context = tl.load(context_lengths + row)
    first = context - kept
    start = (first // TOKENS + piece) * TOKENS
    is_told = (piece == 0) & (head == 0) & (tl.program_id(2) == 0)
    if (start >= context) & (is_told == 0):
        return
    before = _start(query_starts, context_lengths, row, least_queries, window)
    if is_told:
        tl.store(starts + row, before)
        tl.store(starts + row + 1, before + kept, mask=row == num_rows - 1)

    memory = memory_of(
        block_tables + row.to(tl.int64) * table_width, keys, values, key_scales, value_scales, stride, scale_stride,
        head, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD,
    )  # fmt: skip
    tokens, columns = start + tl.arange(0, TOKENS), tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    places = (before + tokens - first).to(tl.int64) * tl.num_programs(1) + head
    mask = ((tokens >= first) & (tokens < context))[:, None] & (columns < HEAD_DIM)[None, :]
    places = places[:, None] * HEAD_DIM + columns[None, :]
    if tl.program_id(2) == 0:
        found = _keys(memory, start, context, TOKENS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD)
        tl.store(plain_keys + places, found.to(plain_keys.dtype.element_ty), mask=mask)
    else:
        found = _values(memory, start, context, TOKENS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD)
        tl.store(plain_values + places, found.to(plain_values.dtype.element_ty), mask=mask)


class Kept(NamedTuple):
    """Tokens, as many as there may be."""

    all_rows: int
    a_row: int


def kept_at_most(rows: DeviceRows, window: int | None) -> Kept:
    """What the host knows of it: of a step's answers none are kept, where it is known which rows these are."""
    unknown = ((rows.max_queries, rows.max_context),) * rows.num_rows
    lengths = unknown if rows.prompts is None else rows.prompts.lengths
    kept = [context if window is None else min(context, queries + window - 1) for queries, context in lengths]
    return Kept(sum(kept), max(kept, default=0))


def plain_memory(
    kv: PagedKV, rows: DeviceRows, window: int | None, least_queries: int, keys: Tensor, values: Tensor
) -> Tensor:
    """Of rows with `least_queries` or more, into `keys` and `values` [tokens, heads, head_dim].

    These have room for `kept_at_most`: where it is known which rows are prompts, others keep nothing. Returns int32
    [R + 1]: the tokens of row r are starts[r]:starts[r + 1].
    """
    least_queries = max(least_queries, 1 if rows.prompts is None else 2)
    starts = rows.query_starts.new_empty(rows.num_rows + 1)
    pieces = kept_at_most(rows, window).a_row // _TOKENS + 2  # wherever a row begins
    packed = [memory.view(_NUMBERS.get(kv.kind, torch.int32)) for memory in (kv.keys, kv.values)]
    scales = [packed[0] if held is None else held.view(torch.int32) for held in (kv.key_scales, kv.value_scales)]
    plain_memory_kernel[rows.num_rows * pieces, kv.num_heads, 2](
        keys, values, starts, rows.query_starts, rows.context_lengths, rows.block_tables, *packed, *scales,
        rows.block_tables.shape[1], packed[0].stride(0), scales[0].stride(0), rows.num_rows, pieces,
        least_queries, window or 0, _TOKENS, kv.head_dim, kv.block_size, kv.kind, KV_FORMATS[kv.kind].per_unit,
        num_warps=_WARPS,
    )  # fmt: skip
    return starts


def examples() -> Iterator[Example]:
    lists = dict.fromkeys(("starts", "query_starts", "context_lengths", "block_tables"), "*i32")
    scales = dict.fromkeys(("key_scales", "value_scales"), "*i32")
    counts = dict.fromkeys((*_COUNTS, "stride", "scale_stride"), "i32")
    for kind in ("bf16", "int8", "uint4"):
        types = dict.fromkeys(("plain_keys", "plain_values"), "*bf16") | dict.fromkeys(("keys", "values"), "*i32")
        types |= lists | scales | counts
        types = {name: types[name] for name in plain_memory_kernel.arg_names if name in types}
        constants = dict(
            TOKENS=_TOKENS, HEAD_DIM=128, BLOCK_SIZE=16, KIND=kind, PER_WORD=KV_FORMATS[kind].per_unit
        )  # fmt: skip
        pointers = (name for name, kept in types.items() if kept.startswith("*") and name not in _ROWS)
        aligned = (*pointers, "stride", "scale_stride")
        yield Example(f"plain memory {kind}", plain_memory_kernel, types, constants, _WARPS, aligned=aligned)
