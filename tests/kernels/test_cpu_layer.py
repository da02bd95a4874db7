"""Norms, sums, activations and embeddings on the CPU against torch, and the same bits whatever a row's company."""

import ctypes
from collections.abc import Callable
from ctypes import addressof, c_int32

import pytest
import torch
import torch.nn.functional as F
from builders.native_variants import available_variants, quick_or_long
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.cpu import layer
from penstock.kernels.cpu.layer import Quantize, QuantizedRows, linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.weights.packed import NativeWeight, pack, pack_int4_from
from penstock.kernels.operands import Activation
from penstock.kernels.reference import pointwise
from penstock.kernels.reference.pointwise import embedding

VARIANTS = [name for name in ("amx", "avx512_bf16", "avx512", "avx2") if name in available_variants()]
pytestmark = pytest.mark.skipif(not VARIANTS, reason="this processor executes none of the native variants")

quick = settings(max_examples=25, deadline=None, derandomize=True)
row_counts, widths = st.integers(0, 70), st.integers(1, 300)
EPSILON = 1e-6


@pytest.fixture(params=quick_or_long(VARIANTS))
def library(request: pytest.FixtureRequest) -> Library:
    return load(request.param)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def call(library: Library, name: str, arguments: ctypes.Structure, num_rows: int) -> None:
    count = c_int32(num_rows)
    arguments.num_rows = addressof(count)
    library.call(f"penstock_{name}", arguments)


def add_rms_norm(
    library: Library, stream: Tensor, update: Tensor | None, weight: Tensor, quantized: QuantizedRows | None = None
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
    if quantized:
        arguments.output, arguments.quantized = None, quantized.structure()
    call(library, "add_rms_norm", arguments, stream.shape[0])
    return output


def gate(
    library: Library, gate_up: Tensor, quantized: QuantizedRows | None = None, activation: Activation = "silu"
) -> Tensor:
    output = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
    arguments = layer.Gate(gate_up=gate_up.data_ptr(), width=output.shape[1], output=output.data_ptr())
    arguments.activation = layer.ACTIVATIONS.index(activation)
    if quantized:
        arguments.output, arguments.quantized = None, quantized.structure()
    call(library, "gate", arguments, gate_up.shape[0])
    return output


def quantize(library: Library, rows: Tensor) -> QuantizedRows:
    quantized = QuantizedRows.empty(*rows.shape)
    arguments = Quantize(input=rows.data_ptr(), width=rows.shape[1], quantized=quantized.structure())
    call(library, "quantize", arguments, rows.shape[0])
    return quantized


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


@pytest.mark.parametrize("activation", EXACT)
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


@pytest.mark.parametrize(
    ("activation", "of_1e15"),
    [(name, 1e15) for name in ("silu", "gelu", "gelu_tanh", "gelu_sigmoid", "relu")] + [("relu2", 1e30)],
)
def test_an_activation_of_what_is_not_a_small_number(library: Library, activation: Activation, of_1e15: float) -> None:
    gates = torch.tensor([[float("nan"), 1e15, -1e15, -200.0, float("inf"), 0.0]])
    output = gate(library, torch.cat([gates, torch.ones_like(gates)], -1), activation=activation)
    expected = torch.tensor([[float("nan"), of_1e15, 0.0, 0.0, float("inf"), 0.0]])
    torch.testing.assert_close(output, expected, equal_nan=True)


ROW_OPERATIONS: dict[str, Callable[[Library, Tensor], Tensor]] = {
    "add_rms_norm": lambda library, rows: add_rms_norm(
        library, rows.clone(), rows.flip(-1).contiguous(), rows.new_ones(rows.shape[1])
    ),
    **{
        f"gate {name}": lambda library, rows, name=name: gate(library, torch.cat([rows, rows], -1), activation=name)
        for name in layer.ACTIVATIONS
    },
}


@pytest.mark.parametrize("operation", ROW_OPERATIONS)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("width", [19, 1024])
def test_a_row_has_the_same_bits_alone_and_in_company(
    library: Library, operation: str, threads: int, width: int
) -> None:
    rows, run = normal(150, width), ROW_OPERATIONS[operation]
    library.set_threads(1)
    alone = torch.cat([run(library, row[None]) for row in rows])
    library.set_threads(threads)
    try:
        for num_rows in (1, 2, 9, 33, 150):
            assert torch.equal(run(library, rows[:num_rows].contiguous()), alone[:num_rows])
    finally:
        library.set_threads(1)


@pytest.mark.parametrize("width", [5, 64, 200])
def test_the_quantized_form_is_that_of_the_output(library: Library, width: int) -> None:
    stream, weight, gate_up = normal(21, width), normal(width, seed=2), normal(21, 2 * width)
    normed, activated = QuantizedRows.empty(21, width), QuantizedRows.empty(21, width)
    add_rms_norm(library, stream, None, weight, normed)
    assert are_equal(normed, quantize(library, add_rms_norm(library, stream, None, weight)))
    gate(library, gate_up, activated)
    assert are_equal(activated, quantize(library, gate(library, gate_up)))


def embedded(library: Library, token_ids: Tensor, table: object, first: int, width: int) -> Tensor:
    output, pointer = torch.full((len(token_ids), width), torch.nan), torch.tensor([token_ids.data_ptr()])
    arguments = layer.Embedding.of(0, pointer.data_ptr(), first, table, output.data_ptr())  # type: ignore[arg-type]
    call(library, "embedding", arguments, len(token_ids))
    return output


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 24, 131])
@pytest.mark.parametrize("first", [0, 10, 100])
def test_a_table_of_plain_rows_gives_those_it_holds(
    library: Library, dtype: torch.dtype, width: int, first: int
) -> None:
    table, token_ids = normal(40, width).to(dtype), torch.arange(-3, 120)
    expected = embedding.reference(token_ids, table.float(), first)
    assert torch.equal(embedded(library, token_ids, table, first, width), expected)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("first", [0, 10])
def test_a_table_packed_for_products_gives_the_rows_it_was_packed_from(library: Library, kind: str, first: int) -> None:
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[kind]
    rows, token_ids = normal(75, 201), torch.arange(100)
    expected = embedding.reference(token_ids, rows.to(dtype).float(), first)
    assert torch.equal(embedded(library, token_ids, pack([rows], kind), first, 201), expected)


@pytest.mark.parametrize(
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
    ones = torch.eye(200)  # exact as 8-bit integers, so that products with it are the weight's columns
    products, num_rows = torch.empty(200, 75), c_int32(200)
    quantized = quantize(library, ones)
    arguments = linear_arguments(addressof(num_rows), None, quantized.structure(), weight, None, products)
    library.call(f"penstock_linear_{weight.kind}", arguments)
    expected = embedding.reference(token_ids, products.T, 0)
    torch.testing.assert_close(embedded(library, token_ids, weight, 0, 200), expected, rtol=1e-5, atol=1e-7)
    assert products.abs().max() > 1


def group_scales(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Some scales, and zeros other than the usual one, for groups of 64."""
    groups = -(-rows.shape[1] // 64)
    zeros = torch.arange(rows.shape[0] * groups) % 16
    return normal(rows.shape[0], groups, seed=3).abs(), zeros.view(-1, groups).to(torch.uint8)
