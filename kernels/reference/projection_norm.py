"""The norm of all query heads of a token together, and of all its key heads, over the heads of all ranks."""

import torch
from torch import Tensor

from ..operands import ProjectionNorm
from ..registry import op


@op()
def square_sums(heads: Tensor, norm: ProjectionNorm) -> Tensor:
    """[T, 2] in float32: the sums of the squares of a token's queries and of its keys, of [queries, keys, values]."""
    query, key, _ = norm.parts(heads)
    # A lone row's sum might be split over threads, and have other bits than in company.
    squares = [torch.cat((part, part[:1])).float().square() for part in (query, key)]
    return torch.stack([part.sum(-1) for part in squares], -1)[: len(heads)]


@op()
def norm_projections(product: Tensor, sums: Tensor, norm: ProjectionNorm) -> Tensor:
    """Norms queries and keys in place, given all ranks' sums, and clamps these and the values; gives the product."""
    query, key, value = norm.parts(product)
    for part, weight, own, total in (
        (query, norm.query_weight, sums[:, 0], norm.query_total),
        (key, norm.key_weight, sums[:, 1], norm.key_total),
    ):
        scale = (own / total + norm.epsilon).rsqrt()[:, None]
        part.copy_((part.float() * scale * weight.float()).clamp(-norm.limit, norm.limit))
    value.clamp_(-norm.limit, norm.limit)
    return product
