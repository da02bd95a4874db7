"""Norms, sums, activations, gates and embeddings on the CPU against torch, and the same bits whatever a row's company.

A gate behind a product gives in one call, bit for bit, what the two give one after another.
"""

import ctypes
from collections.abc import Callable
from ctypes import addressof, c_int32
from itertools import product as combinations

import torch
import torch.nn.functional as F
from builders.cases import for_each
from builders.native_products import assert_free_of_company, embedded, product, quantized
from builders.native_products import draws as normal
from builders.native_variants import needs_variant
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.cpu import layer
from penstock.kernels.cpu.layer import ACTIVATIONS, Gate, GatedLinear, QuantizedRows, linear_arguments
from penstock.kernels.cpu.library import Library
from penstock.kernels.cpu.weights.packed import NativeWeight, pack, pack_int4_from
from penstock.kernels.cpu.weights.quantized import pack_parts
from penstock.kernels.operands import DTYPES, Activation
from penstock.kernels.reference import pointwise
from penstock.kernels.reference.pointwise import embedding

pytestmark = needs_variant
quick = settings(max_examples=25, deadline=None, derandomize=True)
row_counts, widths = st.integers(0, 70), st.integers(1, 300)
EPSILON = 1e-6


def call(library: Library, name: str, arguments: ctypes.Structure, num_rows: int) -> None:
    count = c_int32(num_rows)
    arguments.num_rows = addressof(count)
    library.call(f"penstock_{name}", arguments)


def add_rms_norm(
    library: Library, stream: Tensor, update: Tensor | None, weight: Tensor, into: QuantizedRows | None = None
) -> Tensor:
    output = torch.empty_like(stream)
    arguments = layer.AddRmsNorm(
        stream=stream.data_ptr(),
        update=None if update is None else update.data_ptr(),
        scale=1.0,
        weight=weight.data_ptr(),
        epsilon=EPSILON,
        width=stream.shape[1],
        output=output.data_ptr(),
    )
    if into:
        arguments.output, arguments.quantized = None, into.structure()
    call(library, "add_rms_norm", arguments, stream.shape[0])
    return output


def gate(
    library: Library, gate_up: Tensor, into: QuantizedRows | None = None, activation: Activation = "silu"
) -> Tensor:
    output = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
    arguments = layer.Gate(gate_up=gate_up.data_ptr(), width=output.shape[1], output=output.data_ptr())
    arguments.activation = ACTIVATIONS.index(activation)
    if into:
        arguments.output, arguments.quantized = None, into.structure()
    call(library, "gate", arguments, gate_up.shape[0])
    return output


def are_equal(a: QuantizedRows, b: QuantizedRows) -> bool:
    return all(torch.equal(getattr(a, field), getattr(b, field)) for field in ("values", "scales", "totals", "sums"))


def test_a_norm_adds_and_scales(library: Library) -> None:
    @quick
    @given(row_counts, widths, st.booleans())
    def check(num_rows: int, width: int, has_update: bool) -> None:
        stream, update, weight = normal(num_rows, width), normal(num_rows, width, seed=1), normal(width, seed=2)
        total = stream + update if has_update else stream.clone()
        output = add_rms_norm(library, stream, update if has_update else None, weight)
        assert torch.equal(stream, total)
        expected = F.rms_norm(total.double(), (width,), weight.double(), EPSILON).float()
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-7)

    check()


# What an activation may be off: relative to itself, and to the number that it is of, where gelu leaves next to nothing.
EXACT = {
    "silu": (1e-5, 0), "gelu": (1e-6, 3e-7), "gelu_tanh": (1e-5, 1e-15), "gelu_sigmoid": (1e-5, 0), "relu": (0, 0),
    "relu2": (2e-7, 0),
}  # fmt: skip


@for_each("activation", EXACT)
def test_a_gate_lets_through_what_its_activation_says(library: Library, activation: Activation) -> None:
    relative, of_input = EXACT[activation]

    @quick
    @given(row_counts, widths, st.sampled_from([0.1, 4.0, 40.0]))
    def check(num_rows: int, width: int, size: float) -> None:
        gate_up = normal(num_rows, 2 * width) * size
        gates, ups = gate_up.double().chunk(2, -1)
        expected = pointwise.gate.reference(gate_up.double(), activation)
        error = (gate(library, gate_up, activation=activation) - expected).abs()
        assert (error <= (expected.abs() * (relative + 1e-7) + (gates * ups).abs() * of_input + 1e-33)).all()

    check()
    gates = torch.tensor([[torch.nan, 1e15, -1e15, -200.0, torch.inf, 0.0]])  # what is not a small number
    output = gate(library, torch.cat([gates, torch.ones_like(gates)], -1), activation=activation)
    expected = torch.tensor([[torch.nan, 1e30 if activation == "relu2" else 1e15, 0.0, 0.0, torch.inf, 0.0]])
    torch.testing.assert_close(output, expected, equal_nan=True)


ROW_OPERATIONS: dict[str, Callable[[Library, Tensor], Tensor]] = {
    "add_rms_norm": lambda library, rows: add_rms_norm(
        library, rows.clone(), rows.flip(-1).contiguous(), rows.new_ones(rows.shape[1])
    ),
    **{
        f"gate {name}": lambda library, rows, name=name: gate(library, torch.cat([rows, rows], -1), activation=name)
        for name in ACTIVATIONS
    },
}


@for_each("operation", ROW_OPERATIONS)
@for_each("width", [19, 1024])
def test_a_row_has_the_same_bits_alone_and_in_company(library: Library, operation: str, width: int) -> None:
    rows, run = normal(150, width), ROW_OPERATIONS[operation]
    assert_free_of_company(library, lambda own: run(library, rows[own].contiguous()), 150, (1, 2, 9, 33, 150))


@for_each("width", [5, 64, 200])
def test_the_quantized_form_is_that_of_the_output(library: Library, width: int) -> None:
    stream, weight, gate_up = normal(21, width), normal(width, seed=2), normal(21, 2 * width)
    normed, activated = QuantizedRows.empty(21, width), QuantizedRows.empty(21, width)
    add_rms_norm(library, stream, None, weight, normed)
    assert are_equal(normed, quantized(library, add_rms_norm(library, stream, None, weight)))
    gate(library, gate_up, activated)
    assert are_equal(activated, quantized(library, gate(library, gate_up)))


@for_each("kind, dtype", DTYPES.items())
def test_a_table_gives_the_rows_that_it_holds(library: Library, kind: str, dtype: torch.dtype) -> None:
    """Plain, and packed for products."""
    for width, first in ((1, 10), (24, 0), (131, 10), (24, 100)):
        table, token_ids = normal(40, width).to(dtype), torch.arange(-3, 120)
        expected = embedding.reference(token_ids, table.float(), first)
        assert torch.equal(embedded(library, token_ids, table, first, width), expected), (width, first)
    rows, token_ids = normal(75, 201), torch.arange(100)
    for first in (0, 10):
        expected = embedding.reference(token_ids, rows.to(dtype).float(), first)
        assert torch.equal(embedded(library, token_ids, pack([rows], kind), first, 201), expected), first


@for_each(
    "table",
    [
        lambda rows: pack([rows], "int8"),
        lambda rows: pack([rows], "int4", 32),
        lambda rows: pack([rows], "int4", 10_000),
        lambda rows: pack_int4_from([(rows.clamp(-7, 7).add(8).to(torch.uint8), *group_scales(rows))], 64),
    ],
    ids=["int8", "int4", "int4, one group", "int4 with zeros"],
)
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
        self.quantized = QuantizedRows.empty(self.rows, self.width)
        given = self.inputs.structure() if weight.meets_integers else None
        self.product = linear_arguments(count, x, given, weight, bias, self.products)
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
            x, activation, is_kept = normal(rows, inputs, seed=2), number % len(ACTIVATIONS), (number + place) % 2 == 0
            calls = [GatedProduct(library, weight, x, bias, is_kept, activation) for _ in range(2)]
            for one, two in zip(calls[0].in_one(), calls[1].in_two(), strict=True):
                assert torch.equal(one, two), f"{rows} rows, {inputs} → 2 × {width}, kept: {is_kept}"
    library.set_threads(1)


def test_a_number_that_is_none_stays_in_its_row(library: Library) -> None:
    weight, x = pack_parts([normal(128, 64)], "int8", 0), normal(40, 64)
    whole = GatedProduct(library, weight, x, None, True).in_one()[0]
    x[17, 3] = torch.nan
    output, _, scales, *_ = GatedProduct(library, weight, x, None, True).in_one()
    assert output[17].isnan().all() and scales.isnan().tolist() == [row == 17 for row in range(40)]
    others = [row for row in range(40) if row != 17]
    assert torch.equal(output[others], whole[others])
