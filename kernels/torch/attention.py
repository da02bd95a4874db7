"""Attention over the paged KV memory, and the writing of it, in batches of rows.

Rows with one query are batched with rows of a similar context; rows with more queries are batched with rows of the
same shape. A group gathers its blocks into a scratch buffer that stays in the cache, then attends there. The gather
indices and masks of a group are made once a step and serve all layers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..operands import Scoring
from ..reference.attention import attention, capped, ends_of, softmax_with, write_kv
from ..rows import HostRows
from .paging import block_rows, kept_rows, on_device, slot_rows

# Bytes of keys and values that one group gathers. Decode of 4 × 320 tokens of Qwen3-0.6B (10 MB) took 81 µs a row on
# a CPU with 32 MB of L3, 8 × 320 (21 MB) 317 µs. A GPU's own memory has no such edge.
GROUP_BYTES, GPU_GROUP_BYTES = 8 << 20, 512 << 20
# A row joins a group while its context is at least this share of the longest one's.
SIMILAR = 0.75


@dataclass
class Group:
    """Rows that attend in one call: B rows, n queries each, C keys each."""

    num_rows: int
    num_queries: int
    num_keys: int  # C, of which a row uses those that `hidden` leaves
    tokens: Tensor  # [B × n] int64: where the queries lie in the step
    gather: Tensor  # [B × heads × blocks] int64: rows of the memory seen as [num_blocks × heads, block_size × head_dim]
    hidden_from: int  # n = 1: no key before this one is hidden from any row
    hidden: Tensor | None = None  # n = 1: [B, 1, 1, C - hidden_from], True where a row does not see a key
    unwritten: Tensor | None = None  # n = 1: gathered [B × heads × slots, head_dim] values beyond their row's context
    mask: Tensor | None = None  # n > 1: [B, 1, n, C], added to the scores; None where the plain triangle is the mask
    is_causal: bool = True  # False: all keys are seen by all


@write_kv.implement("torch")
def write_kv_in_torch(
    key: Tensor, value: Tensor, keys: Tensor, values: Tensor, rows: HostRows
) -> tuple[Tensor, Tensor]:
    num_heads, block_size, head_dim = keys.shape[1:]
    targets = rows.plan(("slots", num_heads, block_size), lambda: slot_rows(rows.kv_slots, num_heads, block_size))
    for new, memory in ((key, keys), (value, values)):
        memory.view(-1, head_dim).index_copy_(0, targets, new.reshape(-1, head_dim).to(memory.dtype))
    return keys, values


@attention.implement("torch")
def attention_in_torch(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: HostRows,
    scale: float,
    window: int | None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    return _in_groups(query, keys, values, rows, Scoring(scale, window, sinks, softcap), GROUP_BYTES)


@attention.implement("cuda")
def attention_on_a_gpu(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: HostRows,
    scale: float,
    window: int | None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    return _in_groups(query, keys, values, rows, Scoring(scale, window, sinks, softcap), GPU_GROUP_BYTES)


def _in_groups(
    query: Tensor, keys: Tensor, values: Tensor, rows: HostRows, scoring: Scoring, group_bytes: int
) -> Tensor:
    key = ("groups", scoring.window, keys.shape[1:], keys.dtype, query.dtype)
    groups = rows.plan(key, lambda: _groups(rows, keys, query.dtype, scoring.window, group_bytes))
    attended = query.new_empty(query.shape)
    for group in groups:
        attend = _attend_one if group.num_queries == 1 else _attend_many
        own_keys, own_values = _gathered(group, keys, values, rows, query.dtype)
        found = attend(query.index_select(0, group.tokens), own_keys, own_values, group, scoring)
        attended.index_copy_(0, group.tokens, found)
    return attended


def _gathered(group: Group, keys: Tensor, values: Tensor, rows: HostRows, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The group's keys and values, [B, heads, C, head_dim] each."""
    num_heads, block_size, head_dim = keys.shape[1:]
    width = block_size * head_dim
    found = []
    for number, memory in enumerate((keys, values)):
        buffer = rows.scratch.take(number, group.gather.numel(), width, memory)
        torch.index_select(memory.view(-1, width), 0, group.gather, out=buffer)
        if memory is values and group.unwritten is not None:
            # It may hold another request's NaN, which a weight of zero would let through.
            buffer.view(-1, head_dim).index_fill_(0, group.unwritten, 0)
        found.append(buffer.view(group.num_rows, num_heads, -1, head_dim)[:, :, : group.num_keys].to(dtype))
    return found[0], found[1]


def _attend_one(query: Tensor, keys: Tensor, values: Tensor, group: Group, scoring: Scoring) -> Tensor:
    """One query a row: the query heads that share a key head are the rows of its product."""
    num_rows, num_heads, _, head_dim = keys.shape
    shared = query.view(num_rows, num_heads, -1, head_dim) * scoring.scale
    scores = capped(torch.matmul(shared, keys.transpose(-1, -2)), scoring.softcap)  # [B, heads, shared, C]
    if group.hidden is not None:
        scores[..., group.hidden_from :].masked_fill_(group.hidden, -torch.inf)
    if scoring.sinks is None:
        return torch.matmul(torch.softmax(scores, -1), values).view(query.shape)
    # Here a group's heads stand where a head's queries do.
    weights = softmax_with(scoring.sinks, scores.flatten(1, 2)[:, :, None]).view(scores.shape)
    return torch.matmul(weights, values).view(query.shape)


def _attend_many(query: Tensor, keys: Tensor, values: Tensor, group: Group, scoring: Scoring) -> Tensor:
    """Many queries a row, all of one shape."""
    by_head = query.view(group.num_rows, group.num_queries, *query.shape[1:]).transpose(1, 2)
    if scoring.sinks is not None or scoring.softcap is not None:
        attended = _attend_by_head(by_head * scoring.scale, keys, values, group, scoring)
    else:
        is_causal = group.is_causal and group.mask is None
        attended = F.scaled_dot_product_attention(
            by_head, keys, values, attn_mask=group.mask, is_causal=is_causal, scale=scoring.scale, enable_gqa=True
        )
    return attended.transpose(1, 2).reshape(query.shape)


def _attend_by_head(query: Tensor, keys: Tensor, values: Tensor, group: Group, scoring: Scoring) -> Tensor:
    """[B, heads, n, head_dim]. One key head at a time: torch's own function, which keeps no scores, has no sinks or
    caps."""
    mask = group.mask
    if mask is None and group.is_causal:
        ones = torch.ones(group.num_queries, group.num_keys, dtype=torch.bool, device=query.device)
        mask = torch.zeros_like(ones, dtype=query.dtype).masked_fill_(ones.triu(1), -torch.inf)
    shared = query.shape[1] // keys.shape[1]
    attended = torch.empty_like(query)
    for head in range(keys.shape[1]):
        own = slice(head * shared, (head + 1) * shared)
        scores = torch.matmul(query[:, own], keys[:, head : head + 1].transpose(-1, -2))
        sinks = None if scoring.sinks is None else scoring.sinks[own]
        capped_scores = capped(scores, scoring.softcap)
        weights = softmax_with(sinks, capped_scores if mask is None else capped_scores + mask)
        attended[:, own] = torch.matmul(weights, values[:, head : head + 1])
    return attended


def _groups(rows: HostRows, keys: Tensor, dtype: torch.dtype, window: int | None, group_bytes: int) -> list[Group]:
    """Every row in one group, groups within so many bytes where a row alone is."""
    num_heads, block_size, head_dim = keys.shape[1:]
    bytes_a_block = 2 * num_heads * block_size * head_dim * keys.element_size()
    blocks_a_group = max(1, group_bytes // bytes_a_block)
    order = sorted(
        range(len(rows.context_lengths)), key=lambda row: (rows.num_queries(row), -rows.context_lengths[row])
    )
    groups: list[list[int]] = []
    for row in order:
        if not groups or not _joins(row, groups[-1], rows, block_size, blocks_a_group):
            groups.append([])
        groups[-1].append(row)
    return [_group(members, rows, num_heads, block_size, dtype, window) for members in groups]


def _joins(row: int, group: list[int], rows: HostRows, block_size: int, blocks_a_group: int) -> bool:
    longest, context = rows.context_lengths[group[0]], rows.context_lengths[row]
    if rows.num_queries(row) != rows.num_queries(group[0]):
        return False
    if rows.num_queries(row) > 1:
        is_alike = context == longest
    else:
        is_alike = context >= SIMILAR * longest or longest <= 2 * block_size
    return is_alike and (len(group) + 1) * -(-longest // block_size) <= blocks_a_group


def _group(
    members: list[int], rows: HostRows, num_heads: int, block_size: int, dtype: torch.dtype, window: int | None
) -> Group:
    device = rows.block_tables.device
    num_queries = rows.num_queries(members[0])
    contexts = [rows.context_lengths[row] for row in members]
    # The first key that a row's first query sees, and the block where it lies.
    firsts = [max(0, context - num_queries + 1 - window) if window else 0 for context in contexts]
    start_blocks = [first // block_size for first in firsts]
    # Keys from a row's first block to its last query.
    counts = torch.tensor([context - start * block_size for context, start in zip(contexts, start_blocks, strict=True)])
    fewest, most = int(counts.min()), int(counts.max())
    num_blocks = -(-most // block_size)
    tables = rows.block_tables.index_select(0, on_device(torch.tensor(members), device))
    tokens = torch.tensor([rows.query_starts[row] for row in members])[:, None] + torch.arange(num_queries)
    group = Group(
        num_rows=len(members),
        num_queries=num_queries,
        num_keys=most,
        tokens=on_device(tokens.view(-1), device),
        gather=block_rows(tables, on_device(torch.tensor(start_blocks), device), num_blocks, num_heads),
        hidden_from=0 if window else fewest,
    )
    if num_queries > 1:
        if rows.seen_ends is not None or num_queries < max(contexts) or (window and window < num_queries):
            ends = torch.stack([ends_of(rows, row) for row in members])
            ends -= block_size * torch.tensor(start_blocks)[:, None]
            hidden = _hidden(on_device(counts, device), num_queries, 0, most, window, on_device(ends, device))
            group.is_causal = bool(hidden.any())
            if group.is_causal:
                group.mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -torch.inf)
    elif any(firsts) or fewest < most:
        group.hidden = _hidden(on_device(counts, device), 1, group.hidden_from, most, window)
        beyond = torch.arange(most) >= counts[:, None]
        group.unwritten = on_device(kept_rows(beyond, num_blocks * block_size, num_heads), device)
    return group


def _hidden(
    counts: Tensor, num_queries: int, first: int, num_keys: int, window: int | None, ends: Tensor | None = None
) -> Tensor:
    """[B, 1, n, num_keys - first]: which keys a query doesn't see, because of its end [B, n] or its window.

    Each row's queries are the last of so many tokens; without ends they see themselves last.
    """
    keys = torch.arange(first, num_keys, device=counts.device)
    own = counts[:, None] - num_queries + torch.arange(num_queries, device=counts.device)  # the queries' own keys
    hidden = keys >= (own + 1 if ends is None else ends)[:, :, None]
    if window is not None:
        hidden |= keys <= own[:, :, None] - window
    return hidden[:, None]
