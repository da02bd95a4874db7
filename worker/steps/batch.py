"""All that a forward pass needs to know of its step.

Made once a step by the runner, read by embedding, attention and what hands on the adapters. Counts are host integers:
no operation has to ask a device for a shape. Knows nothing of requests.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...kernels import Adapted, Rows
from ..kv.kv_cache import KVCache


@dataclass
class Batch:
    """One step of R rows and T tokens, of which S are asked for logits."""

    token_ids: Tensor  # [T] int64, flat over the rows
    positions: Tensor  # [T] int64
    query_starts: list[int]  # R+1: the tokens of row r are query_starts[r]:query_starts[r + 1]
    context_lengths: list[int]  # R: tokens that the row's last query sees, itself included
    block_tables: Tensor  # [R, max_blocks] int32, padded with 0
    kv_slots: Tensor  # [T] int64: block × block_size + offset where each token's key and value go
    logit_rows: Tensor  # [S] int64: the tokens whose hidden states go to the head
    kv: KVCache
    # R: the row of the rotary table where each row's positions begin; None: all at 0, a position's row is the position.
    rotation_starts: list[int] | None = None
    adapted: Adapted | None = None  # which tokens have a LoRA adapter, if any
    rotation: tuple[Tensor, Tensor] | None = None  # cos and sin of the tokens, set by the model for its layers

    @property
    def num_tokens(self) -> int:
        return self.query_starts[-1]

    @cached_property
    def rotations(self) -> Tensor:
        """[T] int64: the tokens' rows in the rotary table."""
        if self.rotation_starts is None:
            return self.positions
        starts, counts = torch.tensor(self.rotation_starts), torch.tensor(self.query_starts).diff()
        return self.positions + starts.repeat_interleave(counts).to(self.positions.device)

    @property
    def rotations_end(self) -> int:
        """No row of the rotary table that the step reads reaches this."""
        starts = self.rotation_starts or [0] * len(self.context_lengths)
        return max(map(sum, zip(starts, self.context_lengths, strict=True)))

    @cached_property
    def rows(self) -> Rows:
        return Rows(self.query_starts, self.context_lengths, self.block_tables, self.kv_slots, self.kv.scratch)
