"""How a layer's heads are prepared for attention: their numbers, norms and rotation."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class HeadForm:
    """The heads of one layer, on this rank."""

    num_queries: int
    num_keys: int
    head_dim: int
    rotates_pairs: bool
    norms: tuple[Tensor, Tensor] | None = None  # of query and key heads, [head_dim] each
    epsilon: float = 0.0
