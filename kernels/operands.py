"""Operands other than tensors: formats of weights, heads of a layer, norms, memory that ranks share."""

import math
from typing import Literal, NamedTuple, TypeAlias

from ..records import dataclass
from .arrays import BFLOAT16, FLOAT16, FLOAT32, DeviceArray, DType

# Numbers that a model stores and that are no matrix (a norm's weight, a bias), as `Operations.vector` returns them.
Vector: TypeAlias = DeviceArray

FloatKind = Literal["fp32", "fp16", "bf16"]
# Types of ggml's blocks by their own names in small letters, or the name of several that are stored alike.
BlockKind = Literal[
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "q4_k", "q5_k", "q6_k", "iq4_xs",
    "q2_k", "q3_k", "iq1", "iq2", "iq3_xxs", "iq3_s",
]  # fmt: skip
Kind = FloatKind | Literal["int8", "int4", "fp8", "mxfp4", "joined"] | BlockKind
_KINDS: dict[DType, FloatKind] = {FLOAT32: "fp32", FLOAT16: "fp16", BFLOAT16: "bf16"}
DTYPES: dict[str, DType] = {kind: dtype for dtype, kind in _KINDS.items()}


@dataclass(frozen=True)
class WeightFormat:
    """How matrices are stored for products."""

    kind: Kind
    group_size: int = 0  # of int4: neighbours along the input that share a scale
    float8: Kind | None = None  # the kind that a checkpoint's 8-bit floats get; None: this one
    quantizes_rows: bool = False  # of int8 on a GPU: what meets the matrix becomes 8 bits too, as it does on any CPU

    @classmethod
    def of(cls, dtype: DType) -> "WeightFormat":
        return cls(_KINDS[dtype])


@dataclass(frozen=True, eq=False)
class HeadLayout:
    """The heads of one layer, on this rank."""

    num_queries: int
    num_keys: int
    head_dim: int
    rotates_pairs: bool
    # Of query and key heads: [head_dim], or [heads, head_dim]. Where no keys are projected there are none of keys.
    norms: tuple[Vector, Vector | None] | None = None
    epsilon: float = 0.0
    sinks: Vector | None = None  # float32 [num_queries]: of each head a score more, of a value that is 0
    rotary_dim: int = 0  # numbers of a head that are rotated, the first ones; 0: all
    is_gated: bool = False  # behind each projected query stands a gate for what its head attended to
    norms_have_mean: bool = False  # which they take off first
    norms_follow: bool = False  # norms come behind the rotation
    norms_values: bool = False  # values are normed, too, without a weight
    # 2: keys and values; 1: keys, which serve as values; 0: neither, because an earlier layer's are read.
    num_projected_keys: int = 2
    given_scale: float | None = None  # of scores; None: 1 / √head_dim
    softcap: float | None = None  # a score s becomes softcap × tanh(s / softcap)

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.head_dim) if self.given_scale is None else self.given_scale

    @property
    def num_rotated(self) -> int:
        return self.rotary_dim or self.head_dim

    @property
    def num_projected(self) -> int:
        """Heads that are projected: queries, their gates if there are any, and mostly keys and values."""
        return self.num_queries * (1 + self.is_gated) + self.num_projected_keys * self.num_keys

    def split(self, projected: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """Queries, keys and values of [T, num_projected × head_dim], [T, heads, head_dim] each."""
        by_head, step = self._by_head(projected), 1 + self.is_gated
        kept = by_head[:, self.num_queries * step :]
        # Where keys serve as values these are the same.
        return by_head[:, : self.num_queries * step : step], kept[:, : self.num_keys], kept[:, -self.num_keys :]

    def gates(self, projected: DeviceArray) -> DeviceArray:
        """[T, queries, head_dim] of the same, where it is gated."""
        return self._by_head(projected)[:, 1 : 2 * self.num_queries : 2]

    def _by_head(self, projected: DeviceArray) -> DeviceArray:
        return projected.reshape(len(projected), self.num_projected, self.head_dim)


class TokenRotation(NamedTuple):
    """How the heads of a step's tokens are rotated, as `rotate_halves` and `rotate_pairs` want it."""

    cos: DeviceArray  # [T, 1, head_dim]
    sin: DeviceArray  # the same, with the rotation's sign
    query_scales: DeviceArray | None = None  # [T, 1, 1]: what queries are multiplied by


class PlacedRows(NamedTuple):
    """Rows that were made elsewhere, and the tokens of a step that get them."""

    kept: DeviceArray  # [any, parts × width]
    tokens: DeviceArray  # int64 [N]: in the step
    rows: DeviceArray  # int64 [N]: of those that are kept


class Scoring(NamedTuple):
    """How a query's products with keys become the weights of their values."""

    scale: float
    window: int | None = None  # keys that a query sees, its own included
    sinks: Vector | None = None  # float32 [heads]
    softcap: float | None = None  # a score s becomes softcap × tanh(s / softcap)


@dataclass(frozen=True, eq=False)
class LatentLayout:
    """The heads of one layer of latent attention, on this rank, and the vector of a token that they share.

    That vector is a latent of `rank` numbers, normed, and a key of `rope_dim` numbers, rotated. A head's query is
    `nope_dim` numbers, which a product turns into what meets the latent, and `rope_dim` that meet the key.
    """

    num_heads: int
    rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int  # of a head's output
    rotates_pairs: bool
    scale: float  # of scores
    norm: Vector  # of latents, [rank]
    epsilon: float

    @property
    def width(self) -> int:
        """Numbers of a token's vector, and of a query head's."""
        return self.rank + self.rope_dim

    @property
    def query_dim(self) -> int:
        return self.nope_dim + self.rope_dim


# Of an MLP's inner layer: x × sigmoid(x), x × Φ(x), its forms with a hyperbolic tangent and with a sigmoid, max(x, 0),
# and that squared.
Activation = Literal["silu", "gelu", "gelu_tanh", "gelu_sigmoid", "relu", "relu2"]


class Norm(NamedTuple):
    """x / sqrt(mean(x²) + ε) × weight, of each row."""

    weight: Vector  # [in]
    epsilon: float


@dataclass(frozen=True, eq=False)
class ProjectionNorm:
    """A norm of all query heads of a token together, and one of all its key heads."""

    query_weight: Vector  # [queries], of this rank's heads
    key_weight: Vector  # [keys]
    query_total: int  # of how many numbers the sums over all ranks are; what ranks share counts for each
    key_total: int
    epsilon: float
    limit: float = math.inf  # queries, keys and values are clamped to ± this

    @property
    def widths(self) -> tuple[int, int]:
        return len(self.query_weight), len(self.key_weight)

    def parts(self, heads: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """Queries, keys and values of [T, queries + keys + values]."""
        query, key = self.widths
        return heads[:, :query], heads[:, query : query + key], heads[:, query + key :]
