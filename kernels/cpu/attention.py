"""The arguments of attention on the CPU, as the kernels read them, and the memory that a step's plan needs.

Field for field the structures of source/store_heads.cpp and source/attention.hpp.
"""

from ctypes import Structure, addressof, c_float, c_int64, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from .kv_memory import KVMemory
from .layer import Quantized

ROTATIONS = {None: 0, "halves": 1, "pairs": 2}
# Room for so many (token, split of 256 keys) pairs: rows that share a prefix or are alone need it. Without it they are
# computed in fewer, larger pieces, to the same bits. Memory that no step uses is never touched.
MAX_PARTS = 4096
_TILE_INTS = 6


class StoreHeads(Structure):
    """Norm and rotation of queries and keys; keys and values into their slots. Arguments of penstock_store_heads."""

    _fields_ = [
        ("step", c_void_p),
        ("heads", c_void_p),  # float32 [T, queries × query_step + projected × keys × head_dim]
        ("num_query_heads", c_int64),
        ("query_step", c_int64),  # numbers from a query to the next one
        ("num_projected", c_int64),  # 2: keys and values; 1: keys, which serve as values; 0: neither
        ("query_norm", c_void_p),  # [head_dim] for all heads, or for each, or null
        ("key_norm", c_void_p),
        ("norm_stride", c_int64),  # from one head's weight to the next one's; 0: all have one
        ("norms_have_mean", c_int64),  # which they take off first
        ("norms_follow", c_int64),  # norms come behind the rotation
        ("norms_values", c_int64),  # without a weight
        ("epsilon", c_float),
        ("rotary", c_void_p),  # of RotaryTable, or null
        ("rotation", c_int64),  # of ROTATIONS
        ("num_rotated", c_int64),  # numbers of a head, the first ones
        ("kv", KVMemory),
    ]


class AttentionPlan(Structure):
    """Arguments of penstock_plan_attention, which writes what the pointers from `counts` on lead to."""

    _fields_ = [
        ("step", c_void_p),
        ("window", c_int64),  # keys that a query sees, its own included; 0: all
        ("block_size", c_int64),
        ("num_heads", c_int64),  # of keys, or groups of query heads that look at latents
        ("num_shared", c_int64),  # query heads to each of them
        ("max_parts", c_int64),
        ("counts", c_void_p),
        ("tiles", c_void_p),
        ("tile_tokens", c_void_p),
        ("parts", c_void_p),
        ("parted_tokens", c_void_p),
        ("row_order", c_void_p),
    ]


class Attention(Structure):
    """Arguments of penstock_attention."""

    _fields_ = [
        ("plan", c_void_p),
        ("kv", KVMemory),
        ("query", c_void_p),  # float32 [T, query_stride]
        ("query_stride", c_int64),
        ("query_step", c_int64),  # numbers from a query to the next one
        ("scale", c_float),
        ("softcap", c_float),  # 0: none
        ("sinks", c_void_p),  # float32 [query heads], or null
        ("parts", c_void_p),  # float32, as many as num_part_floats says
        ("output", c_void_p),  # float32 [T, query heads × value_dim]
        ("quantized", Quantized),
    ]


@dataclass
class PlanMemory:
    """A plan's arguments and the memory behind them; one for each window that a model's layers have."""

    arguments: AttentionPlan
    memory: Tensor  # int32

    @classmethod
    def allocate(
        cls,
        step: int,
        max_tokens: int,
        max_rows: int,
        block_size: int,
        num_heads: int,
        num_query_heads: int,
        window: int | None = None,
        max_parts: int = MAX_PARTS,
    ) -> "PlanMemory":
        """For steps of up to so many tokens and rows; `step` is the address of the `Step`."""
        most = max_tokens + max_parts
        sizes = (2, most * _TILE_INTS, most, max_tokens, max_tokens, 2 * max_rows)
        memory = torch.zeros(sum(sizes), dtype=torch.int32)
        places = [piece.data_ptr() for piece in memory.split(sizes)]
        sharing = num_query_heads // num_heads
        return cls(AttentionPlan(step, window or 0, block_size, num_heads, sharing, max_parts, *places), memory)

    @property
    def address(self) -> int:
        return addressof(self.arguments)


def num_part_floats(num_query_heads: int, value_dim: int, max_parts: int = MAX_PARTS) -> int:
    """How many floats the parts of one layer take; layers run one after another and use the same ones."""
    return max_parts * num_query_heads * (value_dim + 2)
