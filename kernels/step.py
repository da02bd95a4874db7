from typing import NamedTuple

import torch
from torch import Tensor


class StepInputs(NamedTuple):
    token_ids: Tensor
    positions: Tensor
    kv_slots: Tensor
    context_lengths: Tensor
    block_tables: Tensor


def step_inputs(slots, starts, query_starts, histories, tables, block_size, num_tokens, width):
    counts = query_starts.diff()
    tokens = torch.arange(num_tokens, device=slots.device)
    row = torch.searchsorted(query_starts[1:].contiguous(), tokens, right=True).clamp_(max=len(slots) - 1)
    is_there = tokens < query_starts[-1]
    slot = slots[row].long().clamp(min=0)
    positions = torch.where(is_there, tokens - query_starts[row] + starts[row], 0).long()
    blocks = tables[slot, positions // block_size].long()
    kv_slots = torch.where(is_there, blocks * block_size + positions % block_size, -1)
    context = torch.where(slots >= 0, starts + counts, 0).int()
    return StepInputs(histories[slot, positions].long(), positions, kv_slots, context, tables[slots.long().clamp(min=0), :width])
