"""The operations that change rows each by itself, as native calls of the program that is being recorded.

A part of `products.py`, whose operations multiply them with weights.
"""

from ctypes import addressof
from typing import Any

from ...arrays import Array
from ...operands import Activation, ProjectionNorm
from .. import structs
from ..library import Struct, struct_of
from ..program import Buffer, Program
from ..structs import Step


class RowOperations:
    """Norms, activations, sums and bounds."""

    program: Program  # that is being recorded
    step: Step  # of its rows

    def add_rms_norm(
        self, stream: Buffer, update: Buffer | None, weight: Array, epsilon: float, scale: float = 1.0
    ) -> Buffer:
        return self._add_norm("add_rms_norm", structs.AddRmsNorm, stream, update, scale, weight=weight, epsilon=epsilon)

    def add_layer_norm(
        self,
        stream: Buffer,
        update: Buffer | None,
        weight: Array,
        bias: Array | None,
        epsilon: float,
        scale: float = 1.0,
    ) -> Buffer:
        given = {"weight": weight, "bias": bias, "epsilon": epsilon}
        return self._add_norm("add_layer_norm", structs.AddLayerNorm, stream, update, scale, **given)

    def _add_norm(
        self, kernel: str, kind: type[Struct], stream: Buffer, update: Buffer | None, scale: float, **norm: Any
    ) -> Buffer:
        normed = self.program.buffer(stream.width)
        given = {"stream": stream, "update": update, "scale": scale, "width": stream.width, "output": normed}
        self._record(kernel, kind, normed, (norm["weight"], norm.get("bias")), **given, **norm)
        if update is not None:
            stream.forget_integers()
        return normed

    def square_sums(self, heads: Buffer, norm: ProjectionNorm) -> Buffer:
        sums, (query, key) = self.program.buffer(2), norm.widths
        given = {"heads": heads, "width": heads.width, "query_width": query, "key_width": key, "output": sums}
        self._record("square_sums", structs.SquareSums, sums, None, **given)
        return sums

    def norm_projections(self, product: Buffer, sums: Buffer, norm: ProjectionNorm) -> Buffer:
        query, key = norm.widths
        arguments = struct_of(
            structs.NormProjections,
            num_rows=self.program.num_rows,
            heads=product,
            width=product.width,
            query_width=query,
            key_width=key,
            sums=sums,
            query_weight=norm.query_weight,
            key_weight=norm.key_weight,
            query_total=norm.query_total,
            key_total=norm.key_total,
            epsilon=norm.epsilon,
            limit=norm.limit,
        )
        self.program.call("penstock_norm_projections", arguments, keep=norm)
        return product

    def apply_activation(self, x: Buffer, activation: Activation) -> Buffer:
        activated = self.program.buffer(x.width)
        given = {"activation": structs.ACTIVATION[activation], "output": activated}
        self._record("apply_activation", structs.ApplyActivation, activated, input=x, width=x.width, **given)
        return activated

    def add(self, stream: Buffer, update: Buffer, scale: float = 1.0, factor: float = 1.0) -> Buffer:
        given = {"stream": stream, "update": update, "scale": scale, "factor": factor, "width": stream.width}
        self._record("add", structs.Add, stream, **given, output=stream)
        stream.forget_integers()
        return stream

    def added(self, x: Buffer, update: Buffer, scale: float = 1.0) -> Buffer:
        total = self.program.buffer(x.width)
        given = {"stream": x, "update": update, "scale": scale, "factor": 1.0, "width": x.width}
        self._record("add", structs.Add, total, **given, output=total)
        return total

    def multiply(self, x: Buffer, y: Buffer, part: int = 0) -> Buffer:
        product, columns = self.program.buffer(x.width), y.data_ptr() + 4 * part * x.width
        given = {"x": x, "y": columns, "y_stride": y.width, "width": x.width, "output": product}
        self._record("multiply", structs.Multiply, product, **given)
        return product

    def add_part_norms(self, total: Buffer, x: Buffer, weight: Array, epsilon: float) -> Buffer:
        given = {"total": total, "x": x, "weight": weight, "epsilon": epsilon, "part": len(weight)}
        self._record("add_part_norms", structs.AddPartNorms, total, weight, **given, width=total.width)
        total.forget_integers()
        return total

    def cap(self, product: Buffer, limit: float) -> Buffer:
        given = {"input": product, "width": product.width, "limit": limit, "output_stride": product.width}
        self._record("cap", structs.Cap, product, **given, output=product)
        return product

    def add_gated(self, total: Buffer, update: Buffer, gate: Buffer) -> Buffer:
        given = {"total": total, "update": update, "gate": gate, "width": total.width}
        self._record("add_gated", structs.AddGated, total, **given, output=total)
        return total

    def gather_rows(self, x: Buffer, indices: int) -> Buffer:
        """`indices` is the step's field."""
        gathered = self.program.buffer(x.width)
        given = {"indices": indices, "input": x, "width": x.width, "output": gathered}
        self._record("gather_rows", structs.GatherRows, gathered, x, **given)
        return gathered

    def put_rows(self, stream: Buffer, placed: None, part: int = 0) -> Buffer:
        """The step says which of its tokens get which rows."""
        return self._place_rows("put_rows", stream, part)

    def placed_rows(self, placed: None, width: int, part: int = 0) -> Buffer:
        return self._place_rows("put_rows", self.program.buffer(width), part)

    def add_rows(self, stream: Buffer, placed: None, part: int = 0) -> Buffer:
        return self._place_rows("add_rows", stream, part)

    def _place_rows(self, kernel: str, stream: Buffer, part: int) -> Buffer:
        given = {"stream": stream, "width": stream.width, "part": part}
        arguments = struct_of(structs.PlaceRows, step=addressof(self.step), **given)
        self.program.call(f"penstock_{kernel}", arguments)
        stream.forget_integers()
        return stream

    def _record(
        self, kernel: str, kind: type[Struct], writes: Buffer | None = None, keep: object = None, **fields: Any
    ) -> None:
        """Note down a call on the program's rows; `keep` is what the fields point to, buffers left out."""
        arguments = struct_of(kind, num_rows=self.program.num_rows, **fields)
        self.program.call(f"penstock_{kernel}", arguments, writes, keep)
