"""The operations that layers call where an unproven kernel is switched on: heads and all-reduces wait to be fused, too.

Attention of answers stores their keys and values in the same launch; all-reduces of few rows are fused with the norm
that follows, in memory that GPUs share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from ...operands import HeadLayout, PeerMemory
from ...paged import DeviceRows, PagedKV, Rotation
from ..deferred import Deferred, Value, plain
from ..fused_operations import FusedOperations
from .answers import attend_answers, serves
from .sum_of_ranks import sum_and_norm


@dataclass(frozen=True, eq=False)
class Heads:
    """Queries, keys and values of answers as they were projected: none is stored yet."""

    projected: Tensor
    rotation: Rotation


@dataclass(frozen=True, eq=False)
class Part(Deferred):
    """This rank's part of a deferred all-reduce."""

    x: Tensor
    peers: PeerMemory
    all_reduce: Callable[[Tensor], Value]

    @cached_property
    def tensor(self) -> Tensor:
        return plain(self.all_reduce(self.x))


class UnprovenOperations(FusedOperations):
    """Operations with every unproven kernel that is switched on."""

    def add_rms_norm(
        self, stream: Value, update: Value | None, weight: Tensor, epsilon: float, scale: float = 1.0
    ) -> Value:
        if isinstance(update, Part) and scale == 1.0:
            return sum_and_norm(update.x, update.peers, plain(stream), weight, epsilon)
        return super().add_rms_norm(stream, update, weight, epsilon, scale)

    def store_heads(
        self, heads: Value, layout: HeadLayout, rotation: Rotation | None, kv: PagedKV, rows: DeviceRows
    ) -> Tensor | Heads:
        if rotation is not None and rotation.query_scales is None and serves(layout, kv, rows):
            return Heads(plain(heads), rotation)
        return super().store_heads(heads, layout, rotation, kv, rows)

    def attention(
        self, query: Tensor | Heads, layout: HeadLayout, kv: PagedKV, rows: DeviceRows, window: int | None
    ) -> Tensor:
        if isinstance(query, Heads):
            return attend_answers(query.projected, layout, query.rotation, kv, rows, window).flatten(1)
        return super().attention(query, layout, kv, rows, window)

    def all_reduce(self, x: Value) -> Value:  # type: ignore[override]  # a part is deferred
        peers = self.ranks.peers
        if self.ranks.size == 1 or peers is None or not peers.holds(plain(x)):
            return super().all_reduce(x)
        return Part(plain(x), peers, super().all_reduce)
