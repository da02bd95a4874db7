"""The shape of one step as the operations see it: which tokens belong to which row, and where their KV lies.

A row is one request's share of the step. The counts are host integers, so that no operation waits for a device to
learn a shape. What an operation derives from them (gather indices, masks) is computed once a step and kept here for
the other layers.
"""

from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Any

from ..records import dataclass
from .arrays import DeviceArray


@dataclass
class Scratch:
    """Memory that gathered keys and values pass through. Kept, because touching fresh pages costs more than copying."""

    buffers: dict[Hashable, DeviceArray] = field(default_factory=dict)

    def take(self, number: int, rows: int, width: int, like: DeviceArray) -> DeviceArray:
        """A [rows, width] buffer; the next call with the same number overwrites it."""
        key = (number, like.dtype, like.device)
        held = self.buffers.get(key)
        if held is None or held.numel() < rows * width:
            held = self.buffers[key] = like.new_empty(rows * width)
        return held[: rows * width].view(rows, width)


@dataclass
class HostRows:
    """One step: R rows, T tokens."""

    query_starts: list[int]  # R+1: the tokens of row r are query_starts[r]:query_starts[r + 1]
    context_lengths: list[int]  # R: tokens that the row's last query sees, itself included
    block_tables: DeviceArray  # [R, max_blocks] int32, padded with 0
    kv_slots: DeviceArray  # [T] int64: block × block_size + offset where each token's key and value go
    scratch: Scratch = field(default_factory=Scratch)
    # T int64, on the host: the end of the keys that each query sees, which never falls within a row and for its last
    # query is the context; None: each sees itself last.
    seen_ends: DeviceArray | None = None
    plans: dict[Hashable, Any] = field(default_factory=dict)

    def plan(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """What `build` makes, made once a step."""
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = build()
        return plan

    def num_queries(self, row: int) -> int:
        return self.query_starts[row + 1] - self.query_starts[row]
