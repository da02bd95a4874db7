"""Attention over KV memory in blocks, row by row. Knows nothing of layers or who owns a block."""

import torch
from torch import Tensor

from ..paged import DeviceRows, PagedKV
from ..registry import op


@op(tolerance=2e-2)
def attention_paged(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    """[T, heads, head_dim] of queries over their rows' stored keys and values, causal, within `window` if given."""
    attended = torch.zeros_like(query)
    starts = rows.query_starts.tolist()
    for row, context in enumerate(rows.context_lengths.tolist()):
        if context:
            own = slice(starts[row], starts[row + 1])
            keys, values = _stored(kv, rows.block_tables[row], context)
            attended[own] = _attend(query[own].float(), keys, values, scale, window).to(query.dtype)
    return attended


@op(tolerance=2e-2)
def attention_paged_invariant(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    """`attention_paged`; a version of it promises that a query's bits depend on its own row's tokens alone."""
    return attention_paged.reference(query, kv, rows, scale, window)


def _stored(kv: PagedKV, table: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Keys and values [context, heads, head_dim] of one row."""
    blocks = table[: -(-context // kv.block_size)].long()
    of_row = (None if each is None else each[blocks] for each in (kv.keys, kv.values, kv.key_scales, kv.value_scales))
    return tuple(found.flatten(0, 1)[:context] for found in PagedKV(*of_row).plain)  # type: ignore[return-value]


def _attend(query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None) -> Tensor:
    """[n, heads, head_dim] of the row's last n tokens."""
    shared = query.shape[1] // keys.shape[1]
    scores = torch.einsum("qhd,khd->hqk", query, keys.repeat_interleave(shared, 1)) * scale
    seen = torch.arange(len(keys))
    own = seen[-len(query) :, None]
    is_hidden = (seen > own) | (seen <= own - (window or len(keys)))
    weights = scores.masked_fill_(is_hidden.to(query.device), -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(shared, 1))
