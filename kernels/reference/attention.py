"""Attention over the paged KV memory, and writing to it."""

import torch
from torch import Tensor

from ..registry import op
from ..rows import HostRows


@op()
def write_kv(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, rows: HostRows) -> tuple[Tensor, Tensor]:
    """Store the keys and values [T, heads, head_dim] of the step's tokens in their slots.

    The memory is [blocks, heads, block_size, head_dim], and may have another number format.
    """
    blocks, offsets = rows.kv_slots // keys.shape[2], rows.kv_slots % keys.shape[2]
    keys[blocks, :, offsets] = key.to(keys.dtype)
    values[blocks, :, offsets] = value.to(values.dtype)
    return keys, values


@op(tolerance=1e-4)
def attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: HostRows,
    scale: float,
    window: int | None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """[T, heads, head_dim] of queries over their rows' stored keys and values, within `window` if given."""
    attended = torch.empty_like(query)
    for row, context in enumerate(rows.context_lengths):
        own = slice(rows.query_starts[row], rows.query_starts[row + 1])
        table = rows.block_tables[row, : -(-context // keys.shape[2])].long()
        own_keys, own_values = (of_context(memory[table], context).to(query.dtype) for memory in (keys, values))
        ends = ends_of(rows, row).to(query.device)
        attended[own] = attend(query[own], own_keys, own_values, scale, window, sinks, softcap, ends)
    return attended


attention_invariant = attention.invariant()


def ends_of(rows: HostRows, row: int) -> Tensor:
    """The end of the keys that each of the row's queries sees."""
    if rows.seen_ends is not None:
        return rows.seen_ends[rows.query_starts[row] : rows.query_starts[row + 1]]
    context = rows.context_lengths[row]
    return torch.arange(context - rows.num_queries(row), context) + 1


def of_context(blocks: Tensor, context: int) -> Tensor:
    """[context, heads, head_dim] from a row's blocks [blocks, heads, block_size, head_dim], in their order."""
    return blocks.transpose(1, 2).flatten(0, 1)[:context]


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    window: int | None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    ends: Tensor | None = None,
) -> Tensor:
    """softmax(scale × q kᵀ) v, of a row's last n tokens.

    q is [n, heads, head_dim], k and v are [context, kv_heads, head_dim]; neighbouring query heads share a key head. The
    query at p sees the keys at p - window < j <= p, or with `ends` those before its end. Of the sinks, float32 [heads],
    each takes part in the softmax of its head as one more score, of a value that is 0. With `softcap` a score s becomes
    softcap × tanh(s / softcap).
    """
    shared = query.shape[1] // keys.shape[1]
    scores = torch.einsum("qhd,khd->hqk", query, keys.repeat_interleave(shared, 1)) * scale
    scores = capped(scores, softcap)
    position = torch.arange(len(keys), device=query.device)
    own = position[-len(query) :, None]
    is_behind = position > own if ends is None else position >= ends[:, None]
    is_hidden = is_behind | (position <= own - (window or len(keys)))  # [n, context]
    weights = softmax_with(sinks, scores.masked_fill(is_hidden, -torch.inf))  # [heads, n, context]
    return torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(shared, 1))


def capped(scores: Tensor, softcap: float | None) -> Tensor:
    return scores if softcap is None else (scores / softcap).tanh_().mul_(softcap)


def softmax_with(sinks: Tensor | None, scores: Tensor) -> Tensor:
    """The softmax of scores [..., heads, n, context] and, if there are any, of one sink a head; without its weight."""
    if sinks is None:
        return scores.softmax(-1)
    sink = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
