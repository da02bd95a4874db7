"""The operations that layers call where rows may be few: norms and products wait to be fused with what follows them.

A layer of few answers is six launches: a product with the norm before it, the storing of heads, attention, a product
added to the stream, a gated product with the norm before it, a product added to the stream. Steps of many rows go as in
`TritonOperations`. A row's bits depend on the number of rows, so this is no invariant layout. See `deferred.py`.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..operands import Activation, Norm
from ..torch.packed.gpu_weights import GpuWeight
from .deferred import DeferredNorm, DeferredProduct, DeferredSum, Value, plain
from .launch.switches import STREAM_SUMS
from .operations import Multiplier, TritonOperations
from .products.few_rows.choice import NORMED_ROWS
from .products.lora import DeviceLoraMapping, TritonLora
from .products.tiles.tiles import FEW_ROWS

# Whose arguments are computed before.
_OF_TENSORS = (
    "add_layer_norm", "store_heads", "apply_activation", "square_sums", "norm_projections", "gate_heads",
    "causal_convolution", "delta_net", "gated_norm", "route", "experts", "multiply", "add_gated", "added", "cap",
    "all_gather",
)  # fmt: skip


class FusedOperations(TritonOperations):
    """Operations whose norms and products may be deferred."""

    def linear(self, x: Value, weight: Multiplier, bias: Tensor | None) -> Value:
        if 0 < x.shape[0] <= FEW_ROWS and not weight.is_exact and isinstance(weight.weight, GpuWeight):
            return DeferredProduct(x if isinstance(x, DeferredNorm) else plain(x), weight.weight, bias)
        return super().linear(plain(x), weight, bias)

    def add_lora(self, product: Value, x: Value, lora: TritonLora, adapted: DeviceLoraMapping | None) -> Value:
        return product if adapted is None else super().add_lora(plain(product), plain(x), lora, adapted)

    def add_rms_norm(
        self, stream: Value, update: Value | None, weight: Tensor, epsilon: float, scale: float = 1.0
    ) -> Value:
        stream = plain(stream)
        if isinstance(update, (DeferredProduct, DeferredSum)) and scale == 1.0:
            update.added_to(stream)
            update = None
        if update is None and 0 < len(stream) <= NORMED_ROWS:
            return DeferredNorm(stream, Norm(weight, epsilon))
        return super().add_rms_norm(stream, None if update is None else plain(update), weight, epsilon, scale)

    def gate(self, gate_up: Value, activation: Activation) -> Tensor:
        if isinstance(gate_up, DeferredProduct) and activation == "silu":
            return gate_up.gated()
        return super().gate(plain(gate_up), activation)

    def add(self, stream: Value, update: Value, scale: float = 1.0, factor: float = 1.0) -> Tensor:
        stream = plain(stream)
        if isinstance(update, (DeferredProduct, DeferredSum)) and scale == factor == 1.0:
            return update.added_to(stream)
        return super().add(stream, plain(update), scale, factor)

    def all_reduce(self, x: Value) -> Value:  # type: ignore[override]  # may stay deferred
        if STREAM_SUMS.is_on and self.ranks.size > 1 and isinstance(x, DeferredProduct):
            return DeferredSum(x, self.ranks)
        return x if self.ranks.size == 1 else super().all_reduce(plain(x))


def _of_tensors(name: str) -> Callable[..., Any]:
    def compute(self: FusedOperations, *given: Any, **named: Any) -> Any:
        tensors = {key: plain(each) for key, each in named.items()}
        return getattr(super(FusedOperations, self), name)(*map(plain, given), **tensors)

    return compute


for _name in _OF_TENSORS:
    setattr(FusedOperations, _name, _of_tensors(_name))
