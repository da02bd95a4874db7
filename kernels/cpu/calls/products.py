"""Products with a model's weights, and the adapters and the gate behind one, as native calls that a program records.

A part of `../operations.py`. Some weights multiply rows as they are, some multiply them as 8-bit integers.
"""

from ctypes import addressof
from typing import Any

from ...arrays import Array, address
from ...operands import Activation, WeightFormat
from .. import structs
from ..library import struct_of
from ..program import Buffer
from ..structs import Quantized
from ..weights.blocks import JoinedWeight
from ..weights.lora import NativeLora
from ..weights.packed import NativeWeight
from ..weights.quantized import OrderedWeight
from .rows import RowOperations


class ProductOperations(RowOperations):
    """Products, and what may be computed in one call with them."""

    def linear(self, x: Buffer, weight: NativeWeight, bias: Array | None) -> Buffer:
        product = self.program.buffer(weight.out_features)
        if isinstance(weight, JoinedWeight):
            self._record_joined(x, weight, bias, product)
            return product
        given = self._met_by(x, weight)
        given |= {"weight": weight.structure(), "bias": bias, "output": product, "output_stride": product.width}
        self._record(f"linear_{weight.family}", structs.Linear, product, (weight, bias), **given)
        return product

    def _met_by(self, x: Buffer, weight: NativeWeight) -> dict[str, Any]:
        """The rows as this weight multiplies them."""
        if not weight.meets_integers:
            return {"input": x}
        return {"quantized_input": self._in_order(x, weight) or self._quantized(x, weight.row_group)}

    def _record_joined(self, x: Buffer, weight: JoinedWeight, bias: Array | None, product: Buffer) -> None:
        """Each part is a product of its own kind, beginning where the one before it ends."""
        weights, num_rows, first = weight.parts(), self.program.num_rows, 0
        parts = (structs.JoinedPart * len(weights))()
        for part, own in zip(parts, weights, strict=True):
            given = self._met_by(x, own)
            own_bias = None if bias is None else bias[first : first + own.out_features]
            part.linear = struct_of(structs.Linear, num_rows=num_rows, weight=own.structure(), bias=own_bias, **given)
            part.product, part.first_output = self.program.library.address(f"penstock_linear_{own.family}"), first
            first += own.out_features
        whole = structs.Linear(num_rows=num_rows, output=product.data_ptr(), output_stride=product.width)
        arguments = structs.JoinedLinear(whole, len(weights), addressof(parts))
        self.program.call("penstock_linear_joined", arguments, product, keep=(weight, bias, parts))
        product.writer = arguments.whole  # where the arguments begin

    def add_lora(self, product: Buffer, x: Buffer, lora: NativeLora, adapted: None) -> Buffer:
        """The step says which of its tokens have an adapter."""
        shrunk, parts = self.program.buffer(lora.shrunk_width()), lora.structures()
        arguments = struct_of(
            structs.Lora,
            step=addressof(self.step),
            product=addressof(product.writer),  # type: ignore[arg-type]
            input=x,
            in_features=x.width,
            max_rank=lora.config.max_rank,
            num_parts=len(parts),
            parts=addressof(parts),
            shrunk=shrunk,
        )
        kind = WeightFormat.of(lora.config.dtype).kind
        self.program.call(f"penstock_lora_{kind}", arguments, keep=(lora, parts))
        return product

    def _quantized(self, x: Buffer, group: int) -> Quantized:
        """The rows as 8-bit integers, so many of which share a scale: by whoever writes them if no other call came in
        between, whose buffers may have had the memory that is lent for the integers now; else by a call of its own."""
        if x.is_quantized(group) or (self.program.is_last(x) and x.writer_quantizes):
            return x.quantized(group)
        return x.keep_quantized(self._record_quantize(x, x.room_for_integers(group)))

    def _in_order(self, x: Buffer, weight: NativeWeight) -> Quantized | None:
        """The input as an act-order weight wants it, which no other weight can share."""
        if not isinstance(weight, OrderedWeight):
            return None
        quantized = x.another_quantized(weight.in_features)
        quantized.order, quantized.num_ordered = address(weight.order), weight.in_features
        return self._record_quantize(x, quantized)

    def _record_quantize(self, x: Buffer, quantized: Quantized) -> Quantized:
        self._record("quantize", structs.Quantize, input=x, width=x.width, quantized=quantized)
        return quantized

    def gate(self, gate_up: Buffer, activation: Activation) -> Buffer:
        """One call with the product before it, whose input the caller still holds, unless adapters add to it first."""
        activated = self.program.buffer(gate_up.width // 2)
        product = self.program.take_back(gate_up, "penstock_linear_")
        given = {"gate_up": gate_up, "width": activated.width, "output": activated}
        number = structs.ACTIVATION[activation]
        gate = struct_of(structs.Gate, num_rows=self.program.num_rows, activation=number, **given)
        if product is None:
            self.program.call("penstock_gate", gate, activated)
            return activated
        both = struct_of(structs.GatedLinear, addressof(gate_up.writer), addressof(gate))  # type: ignore[arg-type]
        self.program.call(f"penstock_gated_{product.removeprefix('penstock_')}", both, activated, keep=gate)
        activated.writer = gate
        return activated
