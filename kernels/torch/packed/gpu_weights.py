"""Weight matrices as the GPU's products read them, in five number formats; gpu_blocks.py has those in ggml's blocks.

  fp32, fp16, bf16   [out, in], as they are
  int8               [out, in] around 0, a float32 scale for each output
  int4               two values a byte, [out, in / 2]; a scale, and perhaps a zero, for each group of inputs

Of 4-bit values, blocks of 2H inputs lie together: byte j of a block holds input j in its lower half and input H + j in
its upper half, so that a product meets two runs of neighbouring inputs, each within one group. H is the largest power
of two, at most 64, that divides the group. Scales and zeros lie [out, groups].

What a quantized checkpoint holds is taken over exactly where there is a product for it; the rest (8 bits in groups or
with zeros, groups of odd sizes, rows merged from unlike parts) becomes int8 with a scale for each output.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ....records import dataclass
from ...operands import DTYPES, Kind, WeightFormat
from ...reference.quantized import QuantizedTensor, quantize_int4, quantize_int8
from ...stored.parts import WeightPart, format_of_parts
from ...stored.quantized import MIDDLE, QuantizedPart
from ..parts import floats_of, pieces_of, quantized_tensor

LARGEST_HALF = 64
SMALLEST_HALF = 16  # the fewest inputs that the GPU's matrix units multiply at once
_ROWS_AT_ONCE = 4096  # that are quantized together: bounds the memory in full precision


@dataclass(frozen=True, eq=False)
class GpuWeight:
    """A packed matrix [out_features, in_features]."""

    kind: Kind
    out_features: int
    in_features: int
    group_size: int  # int4: inputs that share a scale; else 0
    values: Tensor
    scales: Tensor | None = None  # int8: float32 [out]; int4: [out, groups] in a checkpoint's own float format
    zeros: Tensor | None = None  # int4: uint8 [out, groups]; None: all 8
    order: Tensor | None = None  # int32 [in], of an act-order checkpoint: which input meets value k

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (self.kind,)

    @property
    def half(self) -> int:
        """The number of inputs whose int4 values share one half of neighbouring bytes."""
        return half_block(self.group_size)

    @property
    def nbytes(self) -> int:
        tensors = (self.values, self.scales, self.zeros, self.order)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def pack(parts: Sequence[WeightPart | Tensor], format: WeightFormat, device: torch.device) -> GpuWeight:
    """The rows of all parts, one below the other, on a device; `format` is for those in floats."""
    integers = [part for part in parts if isinstance(part, QuantizedPart)]
    if not integers:
        return _packed_floats(parts, format_of_parts(parts, format), device)
    if len(integers) == len(parts) and all(map(_is_int8_by_row, integers)):
        return _packed_int8([quantized_tensor(part, device) for part in integers])
    if len(integers) == len(parts):
        nibbles = [each for part in integers if (each := part if part.bits == 4 else part.as_nibbles())]
        if len(nibbles) == len(parts) and _are_int4_in_groups(nibbles):
            return _packed_int4([quantized_tensor(part, device) for part in nibbles])
    return _packed_floats(parts, WeightFormat("int8"), device)


def unpacked(weight: GpuWeight) -> QuantizedTensor:
    """An integer weight in the layout of a checkpoint again."""
    scales = cast(Tensor, weight.scales)
    if weight.kind == "int8":
        return QuantizedTensor(weight.values, scales[:, None], None, weight.in_features)
    blocks = weight.values.unflatten(1, (-1, weight.half))
    values = torch.stack((blocks & 15, blocks >> 4), 2).flatten(1)[:, : weight.in_features].contiguous()
    num_groups = -(-weight.in_features // weight.group_size)
    zeros = None if weight.zeros is None else weight.zeros[:, :num_groups]
    return QuantizedTensor(values, scales[:, :num_groups], zeros, weight.group_size, weight.order)


def half_block(group_size: int) -> int:
    """The largest power of two that divides the group size, up to a bound."""
    return min(group_size & -group_size, LARGEST_HALF)


def _packed_floats(parts: Sequence[WeightPart | Tensor], format: WeightFormat, device: torch.device) -> GpuWeight:
    if format.kind == "int8":
        return _packed_int8(_quantized(parts, quantize_int8, device))
    if format.kind == "int4":

        def quantize(rows: Tensor) -> QuantizedTensor:
            # Whole rows are one group, as long as the values with what pads them.
            return quantize_int4(rows, min(format.group_size, _padded(rows.shape[1], LARGEST_HALF)))

        return _packed_int4(_quantized(parts, quantize, device))
    values = torch.cat([floats_of(part, DTYPES[format.kind], device) for part in parts])
    return GpuWeight(format.kind, values.shape[0], values.shape[1], 0, values)


def _quantized(
    parts: Sequence[WeightPart | Tensor], quantize: Callable[[Tensor], QuantizedTensor], device: torch.device
) -> list[QuantizedTensor]:
    """The same as if all rows were quantized at once: none looks at another."""
    return [quantize(piece) for part in parts for piece in pieces_of(part, _ROWS_AT_ONCE, device)]


def _packed_int8(parts: Sequence[QuantizedTensor]) -> GpuWeight:
    values = torch.cat([part.values for part in parts])
    scales = torch.cat([part.scales[:, 0].float() for part in parts])
    return GpuWeight("int8", values.shape[0], values.shape[1], 0, values, scales)


def _packed_int4(parts: Sequence[QuantizedTensor]) -> GpuWeight:
    in_features, group_size, order = parts[0].values.shape[1], parts[0].group_size, parts[0].order
    if group_size >= in_features:
        group_size = _padded(in_features, LARGEST_HALF)
    values = torch.cat([_halves(part.values, half_block(group_size)) for part in parts])
    scales = torch.cat([part.scales.to(_joint_dtype(parts)) for part in parts])
    zeros = _joined_zeros(parts)
    # What pads the inputs has groups too, of zeros.
    missing = -(-2 * values.shape[1] // group_size) - scales.shape[1]
    return GpuWeight(
        "int4",
        values.shape[0],
        in_features,
        group_size,
        values,
        F.pad(scales, (0, missing)),
        None if zeros is None else F.pad(zeros, (0, missing)),
        order,
    )


def _halves(values: Tensor, half: int) -> Tensor:
    """Two values a byte, from one a byte; what pads the inputs meets zeros."""
    padded = F.pad(values, (0, -values.shape[1] % (2 * half)))
    blocks = padded.unflatten(1, (-1, 2, half))
    return (blocks[:, :, 0] | blocks[:, :, 1] << 4).flatten(1)


def _joint_dtype(parts: Sequence[QuantizedTensor]) -> torch.dtype:
    """The dtype of the parts' scales, or float32 where they differ."""
    dtypes = {part.scales.dtype for part in parts}
    return dtypes.pop() if len(dtypes) == 1 else torch.float32


def _joined_zeros(parts: Sequence[QuantizedTensor]) -> Tensor | None:
    if all(part.zeros is None for part in parts):
        return None
    zeros = [torch.full_like(part.scales, MIDDLE) if part.zeros is None else part.zeros for part in parts]
    return torch.cat([each.to(torch.uint8) for each in zeros])


def _padded(in_features: int, half: int) -> int:
    return in_features + -in_features % (2 * half)


def _is_int8_by_row(part: QuantizedPart) -> bool:
    is_plain = part.zeros is None and part.order is None
    return part.bits == 8 and is_plain and part.scales.shape[1] == 1


def _are_int4_in_groups(parts: Sequence[QuantizedPart]) -> bool:
    first = parts[0]
    is_grouped = first.group_size >= first.values.shape[1] or half_block(first.group_size) >= SMALLEST_HALF
    return is_grouped and all(part.bits == 4 and part.is_grouped_like(first) for part in parts)
