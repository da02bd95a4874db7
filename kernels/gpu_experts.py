"""The weights of many experts as the GPU's grouped products read them: one expert's matrix below the other's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .float8_part import WeightPart
from .gpu_weights import GpuWeight, pack
from .operands import Kind, WeightFormat
from .quantized_part import MIDDLE


class UnlikeExperts(ValueError):
    """Those of one layer are stored in formats that make no weight together."""


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
        scales, zeros = (None if each is None else each[rows] for each in (self.weight.scales, self.weight.zeros))
        return replace(
            self.weight, out_features=self.out_features, values=self.weight.values[rows], scales=scales, zeros=zeros
        )


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
    weight = pack(parts, format, device)
    if weight.order is None:
        return weight
    # Every expert would want its rows in another order. As with all that has no product of its own:
    floats = [part if isinstance(part, Tensor) else part.dequantized() for part in parts]
    return pack(floats, WeightFormat("int8"), device)


def _room(first: GpuWeight, count: int) -> GpuWeight:
    """For as many like the first."""
    scales, zeros = (None if each is None else _taller(each, count) for each in (first.scales, first.zeros))
    values = _taller(first.values, count)
    return replace(first, out_features=count * first.out_features, values=values, scales=scales, zeros=zeros)


def _taller(tensor: Tensor, times: int) -> Tensor:
    return tensor.new_empty(times * len(tensor), *tensor.shape[1:])


def _placed(room: GpuWeight, own: GpuWeight, number: int) -> GpuWeight:
    if _layout(own) != _layout(room):
        raise UnlikeExperts(
            f"Expert {number} is stored as {_layout(own)}, those before it as {_layout(room)}: the experts of a layer "
            "have one format on a GPU. Convert the checkpoint with one kind of quantization for all of them."
        )
    if own.zeros is not None and room.zeros is None and room.scales is not None:
        room = replace(room, zeros=torch.full(room.scales.shape, MIDDLE, dtype=torch.uint8, device=own.zeros.device))
    rows = slice(number * own.out_features, (number + 1) * own.out_features)
    room.values[rows] = own.values
    if room.scales is not None and own.scales is not None:
        room.scales[rows] = own.scales
    if room.zeros is not None:
        room.zeros[rows] = MIDDLE if own.zeros is None else own.zeros
    return room


def _layout(weight: GpuWeight) -> str:
    """What all experts must have in common, in words."""
    scales = "" if weight.scales is None else f" with scales in {weight.scales.dtype}"
    group = f" in groups of {weight.group_size}" if weight.group_size else ""
    return f"{weight.kind}{group}{scales}, {weight.in_features} inputs"
