"""Products of rows with a packed weight matrix, and what low-rank adapters add to them: two small products for each.

The row-invariant form multiplies tiles of exactly TILE rows, so that one code path with one order over K serves every
row.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arrays import Array
from ..lora import LoraConfig, LoraMapping
from ..reference.lora import add_lora, add_lora_invariant
from ..reference.products import linear, linear_invariant
from .arrays import tensor_of, torch_dtype
from .packed.torch_weights import PackedWeight, pack

TILE = 16


@linear.implement("torch")
def linear_in_torch(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    if x.dtype == weight.dtype:
        return _product(x, weight, bias)
    return _product(x.to(weight.dtype), weight, bias).to(x.dtype)


@linear_invariant.implement("torch")
def linear_by_tile(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """Multiply in tiles of TILE rows, the last one filled up with zeros."""
    num_rows = x.shape[0]
    padded = F.pad(x.to(weight.dtype), (0, 0, 0, -num_rows % TILE))
    tiles = [_product(tile, weight, bias) for tile in padded.split(TILE)]
    products = tiles[0] if len(tiles) == 1 else torch.cat(tiles)
    return products[:num_rows].to(x.dtype)


def _product(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    bias = None if bias is None else bias.to(weight.dtype)
    if weight.is_reordered:
        return torch.ops.mkldnn._linear_pointwise(x, weight.values, bias, "none", [], "")
    return F.linear(x, weight.values, bias)


class TorchLora:
    """The weights of all adapters for one product; memory is taken when an adapter comes."""

    def __init__(self, in_features: int, outputs: Sequence[int], config: LoraConfig, device: torch.device) -> None:
        self.outputs = list(outputs)
        self.config = config
        self.device = device
        numbers = config.max_rank * (len(self.outputs) * in_features + sum(self.outputs))
        self.nbytes = config.max_adapters * numbers * config.dtype.itemsize
        self._weights: list[list[tuple[PackedWeight, PackedWeight] | None]] = [
            [None] * len(self.outputs) for _ in range(config.max_adapters)
        ]

    @property
    def untouched(self) -> tuple[Array, ...]:
        return ()

    def put(self, adapter: int, part: int, down: Array, up: Array) -> None:
        placed = (tensor_of(weight, self.device).to(torch_dtype(self.config.dtype)) for weight in (down, up))
        self._weights[adapter][part] = tuple(map(pack, placed))  # type: ignore[assignment]

    def remove(self, adapter: int) -> None:
        self._weights[adapter] = [None] * len(self.outputs)

    def parts_of(self, adapter: int) -> list[tuple[int, PackedWeight, PackedWeight]]:
        """The parts that the adapter changes: first output, `down` and `up` of each."""
        firsts = [sum(self.outputs[:part]) for part in range(len(self.outputs))]
        found = zip(firsts, self._weights[adapter], strict=True)
        return [(first, *weights) for first, weights in found if weights is not None]


@add_lora.implement("torch")
def add_lora_in_torch(product: Tensor, x: Tensor, lora: TorchLora, adapted: LoraMapping) -> Tensor:
    return _added(linear_in_torch, product, x, lora, adapted)


@add_lora_invariant.implement("torch")
def add_lora_by_tile(product: Tensor, x: Tensor, lora: TorchLora, adapted: LoraMapping) -> Tensor:
    return _added(linear_by_tile, product, x, lora, adapted)


def _added(linear: Callable[..., Tensor], product: Tensor, x: Tensor, lora: TorchLora, adapted: LoraMapping) -> Tensor:
    for adapter, tokens in adapted.groups:
        tokens = tokens.long()
        inputs = x[tokens]
        for first, down, up in lora.parts_of(adapter):
            added = linear(linear(inputs, down, None), up, None)
            product[:, first : first + up.out_features].index_add_(0, tokens, added)
    return product
