"""Attention over packed KV memory, row by row. Knows nothing of layers or who owns a block."""

import torch
from torch import Tensor

from ..kv_layout import plain_keys, plain_values
from ..paged import DeviceRows, PagedKV
from ..registry import op
from .attention import attend, of_context


@op(tolerance=2e-2)
def attention_paged(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    """[T, heads, head_dim] of queries over their rows' stored keys and values, causal, within `window` if given."""
    attended = torch.zeros_like(query)
    starts = rows.query_starts.tolist()
    for row, context in enumerate(rows.context_lengths.tolist()):
        if context:
            own = slice(starts[row], starts[row + 1])
            keys, values = _stored(kv, rows.block_tables[row], context)
            attended[own] = attend(query[own].float(), keys, values, scale, window).to(query.dtype)
    return attended


attention_paged_invariant = attention_paged.invariant()


def _stored(kv: PagedKV, table: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Keys and values [context, heads, head_dim] of one row."""
    blocks = table[: -(-context // kv.block_size)].long()
    scales = [None if found is None else found[blocks] for found in (kv.key_scales, kv.value_scales)]
    keys = plain_keys(kv.keys[blocks], scales[0], kv.kind, kv.block_size)
    values = plain_values(kv.values[blocks], scales[1], kv.kind, kv.head_dim)
    return of_context(keys, context), of_context(values, context)
