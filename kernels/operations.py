"""What layers call, as one face over two ways of computing.

On tensors (`TorchOperations`) a call computes at once; where a step is recorded for native kernels
(`cpu/operations.py`), the same call notes down what is to be computed, and tensors stand aside for buffers. Layers
can't tell the difference. Knows the shapes of a decoder's layers, nothing of models.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .forms import DTYPES, WeightForm
from .heads import HeadForm
from .lora import Adapted, LoraForm, LoraWeights
from .opset import OpSet
from .peer_memory import PeerMemory
from .reference.linear import PackedWeight, pack
from .reference.lora import TorchLora, add_lora
from .rows import Rows


class LayerKV(NamedTuple):
    """One layer's part of the KV memory."""

    keys: Tensor
    values: Tensor


class Ranks(Protocol):
    """The processes that share a model, as operations see them."""

    rank: int
    size: int
    peers: PeerMemory | None  # that of all, where kernels can see it

    def all_reduce(self, x: Tensor) -> Tensor: ...

    def all_gather(self, x: Tensor, total: int) -> Tensor: ...

    def span(self, total: int) -> tuple[int, int]: ...

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        """Everyone's numbers, in the order of the ranks."""


class Operations(Protocol):
    """Rows are [tokens, width]; `stream` is changed in place, all else is new."""

    def pack(self, parts: list[Tensor], form: WeightForm) -> Any:
        """A weight from blocks of its outputs, [out, in] each; they may be views of a file."""

    def table(self, part: Tensor, form: WeightForm) -> Any:
        """An embedding's table, of which rows are read."""

    def tied_weight(self, table: Any, form: WeightForm) -> Any:
        """The weight of a head that is tied to this table."""

    def lora(self, in_features: int, outputs: list[int], form: LoraForm) -> LoraWeights:
        """Room for the adapters of one product, whose outputs are parts side by side."""

    def embedding(self, token_ids: Any, table: Any, first: int) -> Any: ...

    def linear(self, x: Any, weight: Any, bias: Tensor | None) -> Any: ...

    def add_lora(self, product: Any, x: Any, lora: Any, adapted: Any) -> Any:
        """The product with what the adapters of the step's tokens make of `x` added in place."""

    def add_rms_norm(self, stream: Any, update: Any | None, weight: Tensor, epsilon: float) -> Any:
        """Adds the update, if any, to the stream; gives the stream's norm."""

    def store_heads(self, heads: Any, form: HeadForm, rotation: Any, kv: LayerKV, rows: Any) -> Any:
        """Norms and rotates query and key heads, stores keys and values in their slots, gives the query."""

    def attention(self, query: Any, form: HeadForm, kv: LayerKV, rows: Any, window: int | None) -> Any: ...

    def silu_mul(self, gate_up: Any) -> Any: ...

    def add(self, stream: Any, update: Any) -> Any: ...

    def gather_rows(self, x: Any, indices: Any) -> Any:
        """The rows of `x` with these indices."""

    def all_reduce(self, x: Any) -> Any:
        """The sum over the ranks."""

    def all_gather(self, x: Any, total: int) -> Any:
        """[rows, total] in float32 from every rank's share of it; rank 0 at least has it all."""


@dataclass(frozen=True)
class TensorOperations:
    """What is the same for all that compute at once, on tensors."""

    device: torch.device
    activations: torch.dtype
    ranks: Ranks

    def add(self, stream: Tensor, update: Tensor) -> Tensor:
        return stream.add_(update)

    def gather_rows(self, x: Tensor, indices: Tensor) -> Tensor:
        return x[indices]

    def all_reduce(self, x: Tensor) -> Tensor:
        return self.ranks.all_reduce(x)

    def all_gather(self, x: Tensor, total: int) -> Tensor:
        return self.ranks.all_gather(x.float(), total)


@dataclass(frozen=True)
class TorchOperations(TensorOperations):
    """With torch's own operations."""

    set: OpSet

    def pack(self, parts: list[Tensor], form: WeightForm) -> PackedWeight:
        placed = [part.to(self.device, DTYPES[form.kind]) for part in parts]
        return pack(placed[0] if len(placed) == 1 else torch.cat(placed))

    def table(self, part: Tensor, form: WeightForm) -> Tensor:
        return part.to(self.device, DTYPES[form.kind], copy=True)

    def tied_weight(self, table: Tensor, form: WeightForm) -> PackedWeight:
        return self.pack([table], form)

    def lora(self, in_features: int, outputs: list[int], form: LoraForm) -> TorchLora:
        return TorchLora(in_features, outputs, form, self.device)

    def embedding(self, token_ids: Tensor, table: Tensor, first: int) -> Tensor:
        return self.set.embedding(token_ids, table, first).to(self.activations)

    def linear(self, x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
        return self.set.linear(x, weight, bias)

    def add_lora(self, product: Tensor, x: Tensor, lora: TorchLora, adapted: Adapted | None) -> Tensor:
        return product if adapted is None else add_lora(self.set.linear, product, x, lora, adapted)

    def add_rms_norm(self, stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        return self.set.rms_norm(stream if update is None else stream.add_(update), weight, epsilon)

    def store_heads(
        self, heads: Tensor, form: HeadForm, rotation: tuple[Tensor, Tensor], kv: LayerKV, rows: Rows
    ) -> Tensor:
        by_head = heads.view(heads.shape[0], -1, form.head_dim)
        query, key, value = by_head.split((form.num_queries, form.num_keys, form.num_keys), 1)
        if form.norms is not None:
            query = self.set.rms_norm(query, form.norms[0], form.epsilon)
            key = self.set.rms_norm(key, form.norms[1], form.epsilon)
        rotate = self.set.rotate_pairs if form.rotates_pairs else self.set.rotate_halves
        # Every row's keys and values are stored before any row attends: rows may share blocks within a step.
        self.set.write_kv(rotate(key, *rotation), value, kv.keys, kv.values, rows)
        return rotate(query, *rotation)

    def attention(self, query: Tensor, form: HeadForm, kv: LayerKV, rows: Rows, window: int | None) -> Tensor:
        return self.set.attention(query, kv.keys, kv.values, rows, form.head_dim**-0.5, window).flatten(1)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        return self.set.silu_mul(gate_up)
