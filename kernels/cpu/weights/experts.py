"""Packs the experts of a mixture one after the other into one weight, each filled up to whole panels.

An expert is packed like a separate matrix, then copied to its offset. A checkpoint may have
stored experts unlike one another (some with zeros of their own in each group, say); then all get the form that holds
each of them.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy

from ...arrays import FLOAT32, Array
from ...experts import ExpertWeights
from ...operands import DTYPES, Kind, WeightFormat
from ...stored.parts import WeightPart, format_of_parts
from ...stored.quantized import MIDDLE
from .blocks import JoinedWeight, unpacked_blocks
from .packed import BLOCK_KINDS, PANEL, NativeWeight, empty, pack, pack_int4_from, padded
from .quantized import OrderedWeight, pack_parts, unpacked, unpacked_mxfp4


def pack_experts(parts: Iterable[list[WeightPart]], count: int, format: WeightFormat) -> NativeWeight:
    """Pack the rows of each expert's parts; the format is for those in floats."""
    experts: _Experts | None = None
    for number, own in enumerate(parts):
        own_format = format_of_parts(own, format)
        weight = _in_order(pack_parts(own, own_format.kind, own_format.group_size))
        experts = experts or _Experts.like(weight, count)
        if not experts.holds(weight):
            experts = experts.widened(number, weight)
        experts.put(number, weight)
    if experts is None:
        raise ValueError("There are no experts to pack.")
    return experts.whole


def unpack_experts(weight: NativeWeight, count: int, out_features: int) -> Array:
    """[count, out_features, in] as floats."""
    rows = -(-out_features // PANEL) * PANEL
    return _floats(weight).reshape(count, rows, weight.in_features)[:, :out_features]


def of_one_kind(weights: ExpertWeights, hidden: int) -> ExpertWeights:
    """The same, with both products in one kind of numbers, for one kernel computes both: what only one of them has as
    floats becomes floats, and 4 bits next to 8 become 8. Blocks of ggml's types can be combined freely."""
    gate_up, down, count = weights.gate_up, weights.down, weights.num_experts
    if gate_up.kind == down.kind or (gate_up.kind in BLOCK_KINDS and down.kind in BLOCK_KINDS):
        return weights
    floats: list[Kind] = [each.kind for each in (gate_up, down) if each.kind in DTYPES]
    kind: Kind = floats[0] if floats else "int8"
    if gate_up.kind != kind:
        return replace(weights, gate_up=_in_kind(kind, gate_up, count, 2 * weights.width))
    return replace(weights, down=_in_kind(kind, down, count, hidden))


def _in_kind(kind: Kind, weight: NativeWeight, count: int, out_features: int) -> NativeWeight:
    form = _form(weight)
    each = (
        NativeWeight(
            form[0], out_features, weight.in_features, *form[1:], numpy.concatenate(_pieces(weight, number, count))
        )
        for number in range(count)
    )
    return pack_experts(([_floats(own)] for own in each), count, WeightFormat(kind))


def _in_order(weight: NativeWeight) -> NativeWeight:
    """Rows of inputs are shared by all experts, so none can have an order of its own; nor can an expert's gate be of
    another kind than what it lets through."""
    if isinstance(weight, JoinedWeight):
        return pack([numpy.concatenate([_floats(part) for part in weight.parts()])], "fp16")
    return pack([_floats(weight)], "int8") if isinstance(weight, OrderedWeight) else weight


class _Experts:
    """Some experts of one shape in one weight."""

    def __init__(self, one: NativeWeight, count: int, kind: Kind, group_size: int, has_zeros: bool) -> None:
        self.one, self.count = one, count
        rows = -(-one.out_features // PANEL) * PANEL
        self.whole = empty(kind, count * rows, one.in_features, group_size, has_zeros)

    @classmethod
    def like(cls, weight: NativeWeight, count: int) -> "_Experts":
        return cls(weight, count, weight.kind, weight.group_size, weight.has_zeros)

    def holds(self, weight: NativeWeight) -> bool:
        return _form(weight) == _form(self.whole)

    def widened(self, num_packed: int, other: NativeWeight) -> "_Experts":
        """The first experts again, in a form that holds the other one as well."""
        if (other.kind, other.group_size) == (self.whole.kind, self.whole.group_size):
            wider = _Experts(self.one, self.count, "int4", other.group_size, has_zeros=True)
        else:
            wider = _Experts(self.one, self.count, "int8", 0, has_zeros=False)
        for number in range(num_packed):
            wider.put(number, self.get(number))
        return wider

    def put(self, number: int, weight: NativeWeight) -> None:
        fitting = weight if self.holds(weight) else self._fitting(weight)
        for own, given in zip(self._pieces(number), _pieces(fitting, 0, 1), strict=True):
            own[:] = given

    def get(self, number: int) -> NativeWeight:
        data = numpy.concatenate(self._pieces(number))
        kind, group_size, has_zeros = _form(self.whole)
        return NativeWeight(kind, self.one.out_features, self.one.in_features, group_size, has_zeros, data)

    def _pieces(self, number: int) -> list[Array]:
        return _pieces(self.whole, number, self.count)

    def _fitting(self, weight: NativeWeight) -> NativeWeight:
        """The same numbers with zeros added, or rounded to 8 bits."""
        if self.whole.kind == "int4":
            part = unpacked(weight)
            zeros = numpy.full(part.scales.shape, MIDDLE, numpy.uint8) if part.zeros is None else part.zeros
            return pack_int4_from([(part.values, part.scales, zeros)], weight.group_size)
        return pack([_floats(weight)], "int8")


def _floats(weight: NativeWeight) -> Array:
    """[out, in] of a weight of any kind."""
    if weight.kind in BLOCK_KINDS:
        return unpacked_blocks(weight)
    if weight.kind == "mxfp4":
        return unpacked_mxfp4(weight).dequantized()
    if weight.meets_integers:
        order = weight.order if isinstance(weight, OrderedWeight) else None
        return replace(unpacked(weight), order=order).dequantized()
    depth = 2 if weight.kind == "bf16" else 1  # neighbours of one output that lie side by side
    width = padded(weight.in_features)
    panels = weight.data.view(DTYPES[weight.kind]).reshape(-1, width // depth, PANEL, depth)
    rows = panels.swapaxes(1, 2).reshape(-1, width)
    return rows[: weight.out_features, : weight.in_features].astype(FLOAT32)


def _form(weight: NativeWeight) -> tuple[Kind, int, bool]:
    return weight.kind, weight.group_size, weight.has_zeros


def _pieces(weight: NativeWeight, number: int, count: int) -> list[Array]:
    """One expert's share of the panels and, where those have scales behind them, of the scales."""
    scales = 4 * PANEL * -(-weight.out_features // PANEL) if weight.kind == "int8" else 0
    parts = numpy.split(weight.data, [weight.nbytes - scales])
    return [part.reshape(count, -1)[number] for part in parts]
