"""Gates and embeddings on the CPU; test_cpu_versions.py holds the other kernels of a layer against their formulas.

A gate behind a product gives in one call, bit for bit, what the two give one after another.
"""

from collections.abc import Callable
from ctypes import addressof, c_int32
from itertools import product as combinations

import torch
from builders.cases import for_each
from builders.native_products import embedded, empty_rows, product, quantized
from builders.native_variants import needs_variant
from builders.quantized_parts import draws as normal
from builders.quantized_parts import pack, pack_parts
from builders.recorded_layers import RECORDED
from torch import Tensor

from penstock.kernels.arrays import DType
from penstock.kernels.cpu.layer import linear_arguments
from penstock.kernels.cpu.library import Library
from penstock.kernels.cpu.structs import ACTIVATION, Gate, GatedLinear
from penstock.kernels.cpu.weights.packed import NativeWeight, pack_int4_from
from penstock.kernels.operands import DTYPES
from penstock.kernels.reference.pointwise import embedding
from penstock.kernels.torch.arrays import array_of, torch_dtype

pytestmark = needs_variant


@for_each("activation", ACTIVATION)
def test_a_gate_minds_the_far_ends_of_its_activation(variant: str, activation: str) -> None:
    gates = torch.tensor([[torch.nan, 1e15, -1e15, -200.0, torch.inf, 0.0]])
    output = RECORDED["pointwise.gate"](torch.cat([gates, torch.ones_like(gates)], -1), activation)
    expected = torch.tensor([[torch.nan, 1e30 if activation == "relu2" else 1e15, 0.0, 0.0, torch.inf, 0.0]])
    torch.testing.assert_close(output, expected, equal_nan=True)


@for_each("kind, dtype", DTYPES.items())
def test_a_table_gives_the_rows_that_it_holds(library: Library, kind: str, dtype: DType) -> None:
    """Plain, and packed for products."""
    for width, first in ((1, 10), (24, 0), (131, 10), (24, 100)):
        table, token_ids = normal(40, width).to(torch_dtype(dtype)), torch.arange(-3, 120)
        expected = embedding.reference(token_ids, table.float(), first)
        assert torch.equal(embedded(library, token_ids, table, first, width), expected), (width, first)
    rows, token_ids = normal(75, 201), torch.arange(100)
    for first in (0, 10):
        expected = embedding.reference(token_ids, rows.to(torch_dtype(dtype)).float(), first)
        assert torch.equal(embedded(library, token_ids, pack([rows], kind), first, 201), expected), first


@for_each("table", [
    lambda rows: pack([rows], "int8"),
    lambda rows: pack([rows], "int4", 32),
    lambda rows: pack([rows], "int4", 10_000),
    lambda rows: pack_int4_from([(rows.clamp(-7, 7).add(8).to(torch.uint8), *group_scales(rows))], 64),
], ids=["int8", "int4", "int4, one group", "int4 with zeros"])  # fmt: skip
def test_an_integer_table_gives_the_rows_that_it_multiplies(
    library: Library, table: Callable[[Tensor], NativeWeight]
) -> None:
    weight, token_ids = table(normal(75, 200)), torch.arange(-5, 80)
    # Rows of the identity are exact as 8-bit integers, so that products with them are the weight's columns.
    products = product(library, torch.eye(200), weight)
    expected = embedding.reference(token_ids, products.T, 0)
    torch.testing.assert_close(embedded(library, token_ids, weight, 0, 200), expected, rtol=1e-5, atol=1e-7)
    assert products.abs().max() > 1


def group_scales(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Some scales, and zeros other than the usual one, for groups of 64."""
    groups = -(-rows.shape[1] // 64)
    zeros = torch.arange(rows.shape[0] * groups) % 16
    return normal(rows.shape[0], groups, seed=3).abs(), zeros.view(-1, groups).to(torch.uint8)


# --- a product and the gate behind it ---------------------------------------------------------------------------------

# Widths of a gate: whole panels of 32, and not; tiles of a single row up to several squares with a rest.
WIDTHS, ROWS = (32, 96, 320, 40, 1), (0, 1, 11, 12, 23, 31, 33, 64, 97)


class GatedProduct:
    """One product with its gate behind it, in memory that is framed by numbers which must stay."""

    def __init__(
        self, library: Library, weight: NativeWeight, x: Tensor, bias: Tensor | None, is_kept: bool, activation: int = 0
    ) -> None:
        self.rows, self.width = len(x), weight.out_features // 2
        self.library, self.kind, self.num_rows = library, weight.kind, c_int32(len(x))
        count, self.inputs = addressof(self.num_rows), quantized(library, x)
        self.products = torch.full((self.rows + 1, weight.out_features), 7.0)
        self.output = torch.full((self.rows + 1, self.width), 7.0)
        self.quantized = empty_rows(self.rows, self.width)
        given = self.inputs.structure() if weight.meets_integers else None
        self.product = linear_arguments(count, x, given, weight, bias, array_of(self.products))
        output = self.output.data_ptr() if is_kept else None
        integers = self.quantized.structure()
        self.gate = Gate(count, self.products.data_ptr(), self.width, activation, output, integers)

    def in_two(self) -> tuple[Tensor, ...]:
        self.library.call(f"penstock_linear_{self.kind}", self.product)
        self.library.call("penstock_gate", self.gate)
        return self.result()

    def in_one(self) -> tuple[Tensor, ...]:
        both = GatedLinear(addressof(self.product), addressof(self.gate))
        self.library.call(f"penstock_gated_linear_{self.kind}", both)
        return self.result()

    def result(self) -> tuple[Tensor, ...]:
        assert (self.products[self.rows :] == 7).all(), "rows beyond the product were written"
        assert (self.output[self.rows :] == 7).all(), "rows beyond the output were written"
        found = self.quantized
        return self.output[: self.rows], found.values, found.scales, found.totals, found.sums


@for_each("kind", ["fp32", "fp16", "bf16", "int8", "int4"])
def test_one_call_gives_what_two_give(library: Library, kind: str) -> None:
    for place, (width, inputs) in enumerate(combinations(WIDTHS, (64, 200))):
        weight = pack_parts([normal(2 * width, inputs)], kind, 32)
        bias = normal(2 * width, seed=1) if width % 64 else None
        library.set_threads((1, 3)[place % 2])
        for number, rows in enumerate(ROWS):
            x, activation, is_kept = normal(rows, inputs, seed=2), number % len(ACTIVATION), (number + place) % 2 == 0
            calls = [GatedProduct(library, weight, x, bias, is_kept, activation) for _ in range(2)]
            for one, two in zip(calls[0].in_one(), calls[1].in_two(), strict=True):
                assert torch.equal(one, two), f"{rows} rows, {inputs} → 2 × {width}, kept: {is_kept}"
            if is_kept:
                kept, integers = calls[0], quantized(library, calls[0].output[:rows])
                for field in ("values", "scales", "totals", "sums"):
                    assert torch.equal(getattr(kept.quantized, field), getattr(integers, field)), field
    library.set_threads(1)


def test_a_number_that_is_none_stays_in_its_row(library: Library) -> None:
    weight, x = pack_parts([normal(128, 64)], "int8", 0), normal(40, 64)
    whole = GatedProduct(library, weight, x, None, True).in_one()[0]
    x[17, 3] = torch.nan
    output, _, scales, *_ = GatedProduct(library, weight, x, None, True).in_one()
    assert output[17].isnan().all() and scales.isnan().tolist() == [row == 17 for row in range(40)]
    others = [row for row in range(40) if row != 17]
    assert torch.equal(output[others], whole[others])
