"""The weights of many experts as the GPU's grouped products read them: one expert's matrix below the other's."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from ....records import dataclass
from ...arrays import FLOAT32
from ...experts import UnlikeExperts
from ...operands import Kind, WeightFormat
from ...stored.ggml import GgmlPart
from ...stored.parts import WeightPart
from ...stored.quantized import MIDDLE
from ..parts import floats_of
from .gpu_blocks import GpuBlocks, Planes, kind_of, pack_blocks
from .gpu_weights import GpuWeight, pack


@dataclass(frozen=True, eq=False)
class GpuExperts:
    """One matrix [out, in] of each expert, of one format."""

    weight: GpuWeight  # [experts × out, in]
    num_experts: int
    quantizes_rows: bool = False  # of int8: what meets it becomes 8 bits too

    @property
    def kind(self) -> Kind:
        return self.weight.kind

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self.weight.kinds

    @property
    def out_features(self) -> int:
        return self.weight.out_features // self.num_experts

    def of(self, number: int) -> GpuWeight:
        """One expert's."""
        rows = slice(number * self.out_features, (number + 1) * self.out_features)
        return _with_lines(self.weight, self.out_features, lambda tensor: tensor[rows])


def pack_experts(
    experts: Iterable[Sequence[WeightPart]], count: int, format: WeightFormat, device: torch.device
) -> GpuExperts:
    """The rows of each expert's parts, on a device; `format` is for those in floats. One expert is read at a time."""
    packed: GpuWeight | None = None
    for number, parts in enumerate(experts):
        own = _packed(parts, format, device)
        if packed is None:
            packed = _room(own, count)
        packed = _placed(packed, own, number)
    if packed is None:
        raise ValueError(f"There are {count} experts, and weights of none.")
    return GpuExperts(packed, count, format.quantizes_rows and packed.kind == "int8")


def _packed(parts: Sequence[WeightPart], format: WeightFormat, device: torch.device) -> GpuWeight:
    if len(kinds := {kind_of(part) for part in parts}) == 1 and None not in kinds:
        return pack_blocks(cast(Sequence[GgmlPart], parts), device)
    weight = pack(parts, format, device)
    if weight.order is None:
        return weight
    # Every expert would want its rows in another order. As with all that has no product of its own:
    floats = [floats_of(part, FLOAT32, device) for part in parts]
    return pack(floats, WeightFormat("int8"), device)


def _with_lines(weight: GpuWeight, out_features: int, lines: Callable[[Tensor], Tensor]) -> GpuWeight:
    """The weight that has so many outputs, in the lines that are made of each of its tensors."""
    if isinstance(weight, GpuBlocks):
        planes = Planes._make(None if each is None else lines(each) for each in weight.planes)
        return replace(weight, out_features=out_features, values=lines(weight.values), planes=planes)
    scales, zeros = (None if each is None else lines(each) for each in (weight.scales, weight.zeros))
    return replace(weight, out_features=out_features, values=lines(weight.values), scales=scales, zeros=zeros)


def _room(first: GpuWeight, count: int) -> GpuWeight:
    """Room for so many experts like the first."""

    def taller(tensor: Tensor) -> Tensor:
        return tensor.new_empty(count * len(tensor), *tensor.shape[1:])

    return _with_lines(first, count * first.out_features, taller)


def _placed(room: GpuWeight, own: GpuWeight, number: int) -> GpuWeight:
    if _layout(own) != _layout(room):
        raise UnlikeExperts(
            f"Expert {number} is stored as {_layout(own)}, those before it as {_layout(room)}: the experts of a layer "
            "have one format on a GPU. Convert the checkpoint with one kind of quantization for all of them."
        )
    if own.zeros is not None and room.zeros is None and room.scales is not None:
        room = replace(room, zeros=torch.full(room.scales.shape, MIDDLE, dtype=torch.uint8, device=own.zeros.device))
    rows = slice(number * own.out_features, (number + 1) * own.out_features)
    for whole, lines in zip(_tensors(room), _tensors(own), strict=True):
        if whole is not None:
            whole[rows] = MIDDLE if lines is None else lines
    return room


def _tensors(weight: GpuWeight) -> tuple[Tensor | None, ...]:
    """Where only one of two weights has zeros, it is the room for all."""
    further = weight.planes if isinstance(weight, GpuBlocks) else (weight.scales, weight.zeros)
    return (weight.values, *further)


def _layout(weight: GpuWeight) -> str:
    """What all experts must have in common, in words."""
    scales = "" if weight.scales is None else f" with scales in {weight.scales.dtype}"
    group = f" in groups of {weight.group_size}" if weight.group_size else ""
    return f"{weight.kind}{group}{scales}, {weight.in_features} inputs"
