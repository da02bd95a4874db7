"""Weight matrices as torch's products want them.

On a CPU weights are reordered once by oneDNN. All projections of Qwen3-0.6B (28 layers, 440 M weights) on an AMD
EPYC (Zen 5), 2 threads, torch 2.13, milliseconds, `F.linear` / packed:

             M=1        M=4        M=16       M=32       M=256
  float32    152 / 68   251 / 50   224 / 66   295 / 100  1,448 / 543
  bfloat16    65 / 29    64 / 28    70 / 39    83 / 51     308 / 275
"""

import torch
from torch import Tensor

from ....records import dataclass

# The number of rows that oneDNN lays the weight out for: the best of none, 1 and 16 as measured above.
_ROWS_HINT: dict[torch.dtype, int | None] = {torch.float32: None, torch.bfloat16: 16}


@dataclass(frozen=True)
class PackedWeight:
    """A weight matrix as its products want it."""

    values: Tensor  # [out, in], or oneDNN's opaque reordering of it
    out_features: int
    in_features: int
    dtype: torch.dtype
    is_reordered: bool

    def plain(self) -> Tensor:
        """[out, in], as it was packed."""
        return self.values.to_dense() if self.is_reordered else self.values


def pack(weight: Tensor) -> PackedWeight:
    """Reorder `weight` [out, in] for products on its device, where oneDNN multiplies its number format.

    On a CPU the result shares no memory with `weight`, which may be a view of a file.
    """
    out_features, in_features = weight.shape
    if weight.device.type != "cpu":
        return PackedWeight(weight, out_features, in_features, weight.dtype, is_reordered=False)
    if not _is_multiplied(weight.dtype):
        return PackedWeight(weight.clone(), out_features, in_features, weight.dtype, is_reordered=False)
    reordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS_HINT[weight.dtype])
    return PackedWeight(reordered, out_features, in_features, weight.dtype, is_reordered=True)


def multiplies_bfloat16() -> bool:
    """Whether this CPU has units for products of bfloat16."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _is_multiplied(dtype: torch.dtype) -> bool:
    if dtype == torch.float32:
        return torch.backends.mkldnn.is_available()
    return dtype == torch.bfloat16 and multiplies_bfloat16()
