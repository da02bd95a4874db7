"""Attention over KV memory in blocks, row by row."""

import torch
from torch import Tensor

from ..paged import DeviceRows, PagedKV
from ..registry import op
from .attention import attend


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
    parts = (None if part is None else part[blocks] for part in (kv.keys, kv.values, kv.key_scales, kv.value_scales))
    keys, values = PagedKV(*parts).plain  # type: ignore[arg-type]  # [blocks, block_size, heads, head_dim]
    return keys.flatten(0, 1)[:context], values.flatten(0, 1)[:context]
