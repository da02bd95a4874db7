"""The operations that layers call: one interface for two ways of computing.

On tensors (`torch/operations.py`, `triton/operations.py`) a call computes at once. Where a step is recorded for native
kernels (`cpu/operations.py`), the same call records the computation, with buffers instead of tensors. Layers
can't tell the difference.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from .arrays import Array, DeviceArray
from .experts import ExpertWeights, Routing
from .lora import LoraConfig
from .operands import Activation, HeadLayout, LatentLayout, ProjectionNorm, Vector, WeightFormat
from .states import DeltaHeads, LayerStates, StateActivation
from .stored.parts import WeightPart

Rows = TypeVar("Rows")  # [tokens, width]: tensors, or what will be one
Weight = TypeVar("Weight")  # [out, in], packed for products

# What layers hand on as they got it. Each way of computing has its own, which its operations name.
StepField = Any  # what a step says of its tokens: a tensor and the like, or an address in a recorded step
LayerRows = Any  # where the tokens of a step lie in a layer's memory
LayerMemory = Any  # the keys and values of a layer
PackedExperts = Any  # the weights of many experts
Table = Any  # of an embedding
Routes = Any  # the experts of each token, and what their outputs are multiplied by
Adapters = Any  # of one product


class LayerKV(NamedTuple):
    """One layer's part of the KV memory."""

    keys: DeviceArray
    values: DeviceArray


class Ranks(Protocol):
    """The processes that share a model, as operations see them."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_reduce(self, x: DeviceArray) -> DeviceArray: ...

    def all_gather(self, x: DeviceArray, total: int) -> DeviceArray: ...

    def span(self, total: int) -> tuple[int, int]: ...

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        """All ranks' numbers, in the order of the ranks."""


class Operations(Protocol[Rows, Weight]):
    """Rows are [tokens, width]; `stream` is changed in place, all else is new."""

    def pack(self, parts: list[WeightPart], format: WeightFormat) -> Weight:
        """Pack a weight from blocks of its outputs, [out, in] each; they may be views of a file."""

    def pack_experts(self, parts: Iterable[list[WeightPart]], count: int, format: WeightFormat) -> PackedExperts:
        """The weights of so many experts of one shape, each from blocks of its outputs, read one after the other."""

    def fitting_experts(self, weights: ExpertWeights, hidden: int) -> ExpertWeights:
        """Convert experts to number formats that are computed together."""

    def table(self, part: WeightPart, format: WeightFormat) -> Table:
        """An embedding's table, of which rows are read."""

    def tied_weight(self, table: Table, format: WeightFormat) -> Weight:
        """The weight of a head that is tied to this table."""

    def lora(self, in_features: int, outputs: list[int], config: LoraConfig) -> Adapters:
        """Allocate adapters of one product, whose outputs are parts side by side."""

    def vector(self, array: Array) -> Vector:
        """Copy numbers that a model stores and that are no matrix, in the format of activations."""

    def exact_vector(self, array: Array) -> Vector:
        """Copy them in float32, whatever the activations' format is."""

    def embedding(self, token_ids: StepField, table: Table, first: int, scale: float) -> Rows: ...

    def linear(self, x: Rows, weight: Weight, bias: Vector | None) -> Rows: ...

    def add_lora(self, product: Rows, x: Rows, lora: Adapters, adapted: StepField) -> Rows:
        """Add the adapters' products of `x` for the step's tokens to the product in place."""

    def add_rms_norm(
        self, stream: Rows, update: Rows | None, weight: Vector, epsilon: float, scale: float = 1.0
    ) -> Rows:
        """Adds scale × the update, if any, to the stream; gives the stream's norm."""

    def add_layer_norm(
        self, stream: Rows, update: Rows | None, weight: Vector, bias: Vector | None, epsilon: float, scale: float = 1.0
    ) -> Rows:
        """The same with a norm that subtracts the mean."""

    def square_sums(self, heads: Rows, norm: ProjectionNorm) -> Rows:
        """[T, 2]: what a norm of all heads together divides by, of queries and of keys; ranks add theirs up."""

    def norm_projections(self, product: Rows, sums: Rows, norm: ProjectionNorm) -> Rows:
        """Norms queries and keys in place, given those sums."""

    def store_heads(
        self, heads: Rows, layout: HeadLayout, rotation: StepField, kv: LayerMemory, rows: LayerRows
    ) -> Rows:
        """Norms query and key heads, rotates them if there is a rotation, stores keys and values, gives the query."""

    def attention(
        self, query: Rows, layout: HeadLayout, kv: LayerMemory, rows: LayerRows, window: int | None
    ) -> Rows: ...

    def gate_heads(self, attended: Rows, heads: Rows, layout: HeadLayout) -> Rows:
        """attended × sigmoid(gate), the gates standing where `heads` were projected."""

    def store_latents(
        self, latents: Rows, layout: LatentLayout, rotation: StepField, kv: LayerMemory, rows: LayerRows
    ) -> None:
        """Normalize the latents, rotate the keys next to them, and store both in their slots."""

    def latent_query(self, query: Rows, weights: Sequence[Weight], layout: LatentLayout, rotation: StepField) -> Rows:
        """[T, heads × width]: of each head its product with its own weight, and its rotated part."""

    def latent_attention(self, query: Rows, layout: LatentLayout, kv: LayerMemory, rows: LayerRows) -> Rows:
        """[T, heads × rank]: of each head the weighted sum of latents."""

    def latent_values(self, attended: Rows, weights: Sequence[Weight], layout: LatentLayout) -> Rows:
        """[T, heads × value_dim]: of each head the product of its sum with its own weight."""

    def causal_convolution(
        self,
        x: Rows,
        weight: Vector,
        bias: Vector | None,
        activation: StateActivation,
        states: LayerStates,
        segments: LayerRows,
    ) -> Rows:
        """[T, channels]: a sum over each channel's last inputs, with the weights [channels, width]."""

    def delta_net(
        self, convolved: Rows, b: Rows, a: Rows, heads: DeltaHeads, states: LayerStates, segments: LayerRows
    ) -> Rows:
        """[T, value heads × value_dim] of a gated delta net, of which the state is written. The inputs may be, too."""

    def gated_norm(self, x: Rows, gate: Rows, weight: Vector, epsilon: float, num_heads: int) -> Rows:
        """norm(x) × weight × silu(gate), the norm by head."""

    def apply_activation(self, x: Rows, activation: Activation) -> Rows: ...

    def gate(self, gate_up: Rows, activation: Activation) -> Rows:
        """The first half of each row, activated, times the second half."""

    def route(
        self,
        logits: Rows,
        bias: Vector | None,
        routing: Routing,
        factors: Vector | None = None,
        token_kinds: StepField = None,
        kind: int = 0,
    ) -> Routes:
        """The experts of each token, and what their outputs are multiplied by, from a router's logits.

        An expert's bias takes part in the choice alone, its factor in what its output is multiplied by. Where tokens
        have kinds, those of another kind have no experts.
        """

    def experts(self, x: Rows, routes: Routes, weights: ExpertWeights) -> Rows:
        """[T, hidden]: of each token the weighted sum over those of its experts that are here."""

    def add(self, stream: Rows, update: Rows, scale: float = 1.0, factor: float = 1.0) -> Rows:
        """Replace the stream by (stream + scale × update) × factor."""

    def added(self, x: Rows, update: Rows, scale: float = 1.0) -> Rows:
        """x + scale × the update, as new rows."""

    def add_part_norms(self, total: Rows, x: Rows, weight: Vector, epsilon: float) -> Rows:
        """Adds to the total the norm of `x`, in which each part as long as the weight has one of its own."""

    def cap(self, product: Rows, limit: float) -> Rows:
        """limit × tanh(product / limit), in place."""

    def multiply(self, x: Rows, y: Rows, part: int = 0) -> Rows:
        """x × y, number by number; of a wider y the part of this number."""

    def add_gated(self, total: Rows, update: Rows, gate: Rows) -> Rows:
        """Adds update × sigmoid(gate) to the total, the gate a number a row."""

    def gather_rows(self, x: Rows, indices: StepField) -> Rows:
        """The rows of `x` with these indices."""

    def put_rows(self, stream: Rows, placed: StepField, part: int = 0) -> Rows:
        """Replace tokens' rows of the stream by this part of rows that were made elsewhere."""

    def placed_rows(self, placed: StepField, width: int, part: int = 0) -> Rows:
        """This part of rows that were made elsewhere, one for each token."""

    def add_rows(self, stream: Rows, placed: StepField, part: int = 0) -> Rows:
        """Add this part of rows that were made elsewhere to their tokens' rows."""

    def all_reduce(self, x: Rows) -> Rows:
        """The sum over the ranks."""

    def all_gather(self, x: Rows, total: int) -> Rows:
        """[rows, total] in float32 from every rank's share of it; rank 0 at least has it all."""
