"""Norms and products that are deferred until it is known what follows, so that a step launches both at once.

A norm waits for the product behind it, which computes it on the way. A product waits until it is added to the stream,
gated, or taken as it is. `plain` computes a deferred tensor for whoever needs it. Nothing is computed twice, and
nothing may change the stream while a norm of it waits.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..operands import Norm
from ..operations import Ranks
from ..torch.packed.gpu_weights import GpuWeight
from .products.few_rows.few_rows import multiply_few
from .rms_norm import add_rms_norm


class Deferred:
    """A tensor that is computed when it is first needed."""

    @property
    def tensor(self) -> Tensor:
        raise NotImplementedError

    @property
    def shape(self) -> torch.Size:
        return self.tensor.shape


@dataclass(frozen=True, eq=False)
class DeferredNorm(Deferred):
    """The norm of the stream as it is."""

    stream: Tensor
    norm: Norm

    @property
    def shape(self) -> torch.Size:
        return self.stream.shape

    @cached_property
    def tensor(self) -> Tensor:
        return add_rms_norm(self.stream, None, *self.norm)


@dataclass(frozen=True, eq=False)
class DeferredProduct(Deferred):
    """The product of few rows with a weight."""

    x: Tensor | DeferredNorm
    weight: GpuWeight
    bias: Tensor | None

    @cached_property
    def tensor(self) -> Tensor:
        return self._launched()

    def added_to(self, stream: Tensor) -> Tensor:
        return self._launched(stream=stream)

    def stored_in(self, stream: Tensor) -> Tensor:
        return self._launched(stream=stream, adds=False)

    def gated(self) -> Tensor:
        return self._launched(is_gated=True)

    def _launched(self, **ending: Any) -> Tensor:
        if isinstance(self.x, DeferredNorm):
            return multiply_few(self.x.stream, self.weight, self.bias, self.x.norm, **ending)
        return multiply_few(self.x, self.weight, self.bias, None, **ending)


@dataclass(frozen=True, eq=False)
class DeferredSum(Deferred):
    """All ranks' products of few rows, added up."""

    product: DeferredProduct
    ranks: Ranks

    @cached_property
    def tensor(self) -> Tensor:
        return self.ranks.all_reduce(self.product.tensor)

    def added_to(self, stream: Tensor) -> Tensor:
        """The stream goes along with the first rank's part, so that nothing adds it up afterwards."""
        part = self.product.added_to(stream) if self.ranks.rank == 0 else self.product.stored_in(stream)
        total = self.ranks.all_reduce(part)
        return stream if total is stream else stream.copy_(total)


Value = Tensor | Deferred


def plain(x: Value) -> Tensor:
    """The tensor itself, computed now if it was deferred."""
    return x.tensor if isinstance(x, Deferred) else x
