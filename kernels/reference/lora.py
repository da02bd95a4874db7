"""What low-rank adapters add to a product."""

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from ..lora import LoraMapping
from ..registry import op
from ..torch.packed.torch_weights import PackedWeight


class AdapterParts(Protocol):
    """The weights of all adapters for one product, in a form that can be read."""

    def parts_of(self, adapter: int) -> Iterable[tuple[int, PackedWeight, PackedWeight]]:
        """The parts that the adapter changes: first output, `down` [rank, in] and `up` [out, rank] of each."""


@op()
def add_lora(product: Tensor, x: Tensor, lora: AdapterParts, adapted: LoraMapping) -> Tensor:
    """product += up × (down × x), in place, for each token's own adapter and each part that it changes."""
    for adapter, tokens in adapted.groups:
        for first, down, up in lora.parts_of(adapter):
            added = x[tokens].double() @ down.plain().double().T @ up.plain().double().T  # [tokens, out of the part]
            columns = slice(first, first + up.out_features)
            product[tokens, columns] = (product[tokens, columns] + added).to(product.dtype)
    return product


add_lora_invariant = add_lora.invariant()
