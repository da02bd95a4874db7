"""Norms, products and heads that wait for what is done with them, so that a step launches both at once.

A norm waits for the product behind it, which computes it on the way. A product waits until it is added to the stream,
gated, or taken as it is; heads of answers wait for their attention, sums over ranks for the norm behind them. Whoever
needs a tensor asks `plain` for it. Nothing is computed twice, and nothing may change the stream while a norm of it
waits. Knows nothing of layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from ..gpu_weights import GpuWeight
from ..norm import Norm
from ..paged import Rotation
from ..peer_memory import PeerMemory
from .products.few_rows import multiply_few
from .rms_norm import add_rms_norm


@dataclass(frozen=True, eq=False)
class Normed:
    """The norm of the stream as it is."""

    stream: Tensor
    norm: Norm

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stream.shape

    @cached_property
    def tensor(self) -> Tensor:
        return add_rms_norm(self.stream, None, *self.norm)


@dataclass(frozen=True, eq=False)
class Product:
    """Of few rows."""

    x: Tensor | Normed
    weight: GpuWeight
    bias: Tensor | None

    @cached_property
    def tensor(self) -> Tensor:
        return self._launched()

    def added_to(self, stream: Tensor) -> Tensor:
        return self._launched(stream=stream)

    def gated(self) -> Tensor:
        return self._launched(is_gated=True)

    def _launched(self, **ending: Any) -> Tensor:
        if isinstance(self.x, Normed):
            return multiply_few(self.x.stream, self.weight, self.bias, self.x.norm, **ending)
        return multiply_few(self.x, self.weight, self.bias, None, **ending)


@dataclass(frozen=True, eq=False)
class Heads:
    """Queries, keys and values of answers as they were projected: none is stored yet."""

    projected: Tensor
    rotation: Rotation


@dataclass(frozen=True, eq=False)
class Part:
    """This rank's part of a sum over all of them."""

    x: Tensor
    peers: PeerMemory
    all_reduce: Callable[[Tensor], Tensor]

    @cached_property
    def tensor(self) -> Tensor:
        return self.all_reduce(self.x)


def plain(x: Any) -> Tensor:
    """What is known by now, computed if it was not yet."""
    return x.tensor if isinstance(x, Normed | Product | Part) else x
