"""The product of rows with a weight matrix of floats."""

from torch import Tensor

from ..packed_weight import PackedWeight
from ..registry import op


@op(tolerance=1e-4)
def linear(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """[M, in] × [out, in]ᵀ + bias in x's dtype; all is rounded to the weight's dtype on the way."""
    product = x.to(weight.dtype).float() @ weight.plain().float().T
    if bias is not None:
        product += bias.to(weight.dtype).float()
    return product.to(weight.dtype).to(x.dtype)


linear_invariant = linear.invariant()
