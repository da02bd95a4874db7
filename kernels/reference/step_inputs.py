"""From the slots of a step's rows to what a forward pass reads, without the host seeing a token or a block.

There may be room to spare, as `kernels.paged` says: rows whose slot is below 0, and tokens after those of the last row.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..registry import op


class StepInputs(NamedTuple):
    token_ids: Tensor  # int64 [T], 0 for spare ones
    positions: Tensor  # int64 [T], likewise
    kv_slots: Tensor  # int64 [T], -1 for spare ones
    context_lengths: Tensor  # int32 [R], 0 for spare ones
    block_tables: Tensor  # int32 [R, width], likewise


@op(tolerance=0)
def step_inputs(
    slots: Tensor,
    starts: Tensor,
    query_starts: Tensor,
    histories: Tensor,
    tables: Tensor,
    block_size: int,
    num_tokens: int,
    width: int,
) -> StepInputs:
    """Row r has a slot, the position of its first token, and the step's tokens query_starts[r]:query_starts[r + 1].

    `histories` [slots, max_model_len] and `tables` [slots, max_blocks] are int32; no context has more than `width`
    blocks, and `num_tokens` is T with the spare ones.
    """
    token = torch.arange(num_tokens, device=slots.device)
    row = torch.searchsorted(query_starts[1:].long(), token, right=True)
    row_or_last = row.clamp(max=len(slots) - 1)
    slot = slots.long()[row_or_last]
    is_spare = (row == len(slots)) | (slot < 0)
    position = (starts[row_or_last] + token - query_starts[row_or_last]).masked_fill(is_spare, 0)
    block = tables[slot, position // block_size].long()
    is_there = slots >= 0
    return StepInputs(
        histories[slot, position].long().masked_fill(is_spare, 0),
        position,
        (block * block_size + position % block_size).masked_fill(is_spare, -1),
        ((starts + query_starts.diff()) * is_there).int(),
        tables[slots.long(), :width] * is_there[:, None],
    )
