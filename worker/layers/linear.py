"""Linear layers, which handle tensor parallelism and number formats.

`MergedLinear` and `QKVLinear` keep the outputs of this rank (several projections in one product), `RowLinear` keeps the
inputs and adds up the ranks' sums. A layer has a bias if the checkpoint has one. Models read `qkv.local_heads`, never
the number of ranks.
"""

import numpy

from ...kernels import WeightFormat
from ...kernels.arrays import FLOAT32, Array
from ...kernels.operations import Adapters, StepField
from ...protocol.errors import ConfigError
from ..weights.piece import CheckpointPiece, Part
from ..weights.weights import Rows, Weight, Weights

EXACT = WeightFormat("fp32")  # for products whose rounding would change choices or decays


class Linear:
    """One product with a packed weight, plus the LoRA adapters of its tokens."""

    def __init__(self, weight: Weight, biases: list[Array], weights: Weights, lora: Adapters | None = None) -> None:
        self.ops = weights.ops
        self.weight = weight  # [out, in]
        joined = numpy.concatenate([each.astype(FLOAT32) for each in biases]) if biases else None
        self.bias = None if joined is None else self.ops.vector(joined)  # [out]
        self.lora = lora

    def __call__(self, x: Rows, adapted: StepField | None = None) -> Rows:
        product = self.ops.linear(x, self.weight, self.bias)  # [T, in] × [out, in]ᵀ + [out] = [T, out]
        return product if self.lora is None else self.ops.add_lora(product, x, self.lora, adapted)  # [T, out]


class MergedLinear(Linear):
    """Several projections of one input, side by side: this rank's rows of each."""

    def __init__(
        self,
        weights: Weights,
        names: list[str],
        in_features: int,
        parts: list[tuple[int, int, int]],
        format: WeightFormat | None = None,
    ) -> None:
        """`parts` lists names with their total number of outputs and this rank's first and last + 1.

        A name may occur more than once, with different rows. `format` overrides the layers' own.
        """
        pieces, biases = [], []
        for name, (total, first, last) in zip(names, parts, strict=True):
            rows: Part = (0, first, last)
            pieces.append(CheckpointPiece(f"{name}.weight", (total, in_features), rows))
            if weights.has(f"{name}.bias"):
                biases.append(weights.read(f"{name}.bias", (total,), rows))
        if biases and len(biases) < len(names):
            raise ConfigError(f"{weights.prefix}: of {', '.join(names)} only {len(biases)} have a bias, not all.")
        weight = weights.packed(pieces) if format is None else weights.packed_as(format, pieces)
        super().__init__(weight, biases, weights, weights.adapters_of(pieces))


class GateUpLinear(MergedLinear):
    """Gate and up of an MLP, or up alone."""

    def __init__(
        self, weights: Weights, names: list[str], in_features: int, out_features: int, span: tuple[int, int]
    ) -> None:
        """`span`: this rank's outputs of each part."""
        super().__init__(weights, names, in_features, [(out_features, *span)] * len(names))


class QKVLinear(MergedLinear):
    """Query, key and value projections. With more ranks than key-value heads, several ranks keep a copy of one head."""

    def __init__(
        self,
        weights: Weights,
        names: list[str],
        in_features: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        is_gated: bool = False,
    ) -> None:
        """`names` are those of queries, keys and values, or the first one or two of these.

        `is_gated`: the projection gives a gate of the same size after each query.
        """
        ranks = weights.placement.ranks
        first, last = ranks.span(num_heads)
        first_kv, last_kv = local_kv_heads(ranks.rank, ranks.size, num_kv_heads)
        self.local_heads = last - first
        self.local_kv_heads = last_kv - first_kv
        query_dim = head_dim * (1 + is_gated)
        query = (num_heads * query_dim, first * query_dim, last * query_dim)
        shared = (num_kv_heads * head_dim, first_kv * head_dim, last_kv * head_dim)
        super().__init__(weights, names, in_features, [query, shared, shared][: len(names)])


class RowLinear:
    """A projection whose input is divided among the ranks; its output is their sum."""

    def __init__(self, weights: Weights, in_features: int, out_features: int, span: tuple[int, int]) -> None:
        """`span`: this rank's inputs."""
        placement = weights.placement
        pieces = [CheckpointPiece("weight", (out_features, in_features), (1, *span))]
        # The bias belongs to the sum, so one rank adds it.
        biases = []
        if weights.has("bias") and placement.ranks.rank == 0:
            biases.append(weights.read("bias", (out_features,)))
        else:
            weights.pass_over("bias")
        self.own = Linear(weights.packed(pieces), biases, weights, weights.adapters_of(pieces))

    def __call__(self, x: Rows, adapted: StepField | None = None) -> Rows:
        return self.own.ops.all_reduce(self.of_rank(x, adapted))  # [T, out]

    def of_rank(self, x: Rows, adapted: StepField | None = None) -> Rows:
        """Return this rank's summand, [T, out], from its inputs, [T, in / ranks]."""
        return self.own(x, adapted)


def local_kv_heads(rank: int, size: int, num_kv_heads: int) -> tuple[int, int]:
    """First and last + 1 of a rank's key-value heads: its share, or the one that its query heads use."""
    first = rank * num_kv_heads // size
    return first, max((rank + 1) * num_kv_heads // size, first + 1)
