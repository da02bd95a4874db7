"""A product of few rows with what stands around it in a layer: the norm before it; what is done with it after.

  norm      x is the stream, and its norm meets the weight
  stream    the product is added to it, in place
  is_gated  the weight's outputs are a gate and what it lets through: silu(first half) × second half

Rows are never quantized.
"""

from torch import Tensor

from ..forms import DTYPES
from ..gpu_weights import GpuWeight
from ..norm import Norm
from ..registry import op
from .pointwise import rms_norm, silu_mul
from .products import linear_gpu, linear_wint8


@op(tolerance=2e-3)
def linear_few_rows(
    x: Tensor,
    weight: GpuWeight,
    bias: Tensor | None,
    norm: Norm | None = None,
    stream: Tensor | None = None,
    is_gated: bool = False,
) -> Tensor:
    """[rows, outputs] in x's dtype, half as many outputs of a gated product; the stream, if there is one."""
    met = x if norm is None else rms_norm.reference(x, norm.weight, norm.epsilon)
    product = (linear_gpu if weight.kind in DTYPES else linear_wint8).reference(met, weight, bias)
    if is_gated:
        product = silu_mul.reference(product)
    return product if stream is None else stream.add_(product)
