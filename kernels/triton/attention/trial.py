"""A decode step that stands for later ones: attention to few queries is tuned on it.

The steps of a warm-up have contexts of a few tokens in one block, which say nothing of a way through memory.
"""

import torch
from torch import Tensor

from ...paged import DeviceRows, PagedKV

_BYTES = 128 << 20  # of keys and values, at most: more than caches hold
_CONTEXT = 2048
_ROWS = 32


def trial_step(query: Tensor, kv: PagedKV) -> tuple[Tensor, PagedKV, DeviceRows]:
    """Rows of one query each and a memory of zeros, with the heads and the format of these."""
    held = [each for each in (kv.keys, kv.values, kv.key_scales, kv.value_scales) if each is not None]
    of_token = sum(each[0].nbytes for each in held) // kv.block_size
    num_rows = min(max(_BYTES // (of_token * _CONTEXT), 1), _ROWS)
    blocks_a_row = -(-_CONTEXT // kv.block_size)
    memory = PagedKV(*(each.new_zeros(num_rows * blocks_a_row, *each.shape[1:]) for each in held))
    # Neighbouring tokens in blocks far from one another, as they are after some time.
    tables = torch.arange(num_rows * blocks_a_row, dtype=torch.int32, device=query.device).view(blocks_a_row, num_rows)
    rows = DeviceRows(
        torch.arange(num_rows + 1, dtype=torch.int32, device=query.device),
        torch.full((num_rows,), _CONTEXT, dtype=torch.int32, device=query.device),
        tables.T.contiguous(),
        torch.full((num_rows,), -1, device=query.device),
        max_queries=1,
        max_context=_CONTEXT,
    )
    return query.new_zeros(num_rows, *query.shape[1:]), memory, rows
