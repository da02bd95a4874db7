"""A gated product in one call gives, bit for bit, what the product and the gate behind it give in two."""

from ctypes import addressof, c_int32
from itertools import product as combinations

import pytest
import torch
from builders.native_variants import available_variants, quick_or_long
from torch import Tensor

from penstock.kernels.cpu.layer import ACTIVATIONS, Gate, GatedLinear, Quantize, QuantizedRows, linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.weights.packed import NativeWeight
from penstock.kernels.cpu.weights.quantized import pack_parts

VARIANTS = [name for name in ("amx", "avx512_bf16", "avx2") if name in available_variants()]
pytestmark = pytest.mark.skipif(not VARIANTS, reason="this processor executes none of the native variants")

KINDS = {"fp32": None, "fp16": None, "bf16": None, "int8": None, "int4": 32}
# Widths of a gate: whole panels of 32, and not; tiles of a single row up to several squares with a rest.
WIDTHS, ROWS = (32, 96, 320, 40, 1), (0, 1, 11, 12, 23, 31, 33, 64, 97)


@pytest.fixture(params=quick_or_long(VARIANTS))
def library(request: pytest.FixtureRequest) -> Library:
    return load(request.param)


def draws(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class Call:
    """One product with its gate behind it, in memory that is framed by numbers which must stay."""

    def __init__(
        self, library: Library, weight: NativeWeight, x: Tensor, bias: Tensor | None, is_kept: bool, activation: int = 0
    ) -> None:
        self.rows, self.width = len(x), weight.out_features // 2
        self.library, self.kind, self.num_rows = library, weight.kind, c_int32(len(x))
        count, self.inputs = addressof(self.num_rows), QuantizedRows.empty(*x.shape)
        library.call("penstock_quantize", Quantize(count, x.data_ptr(), x.shape[1], self.inputs.structure()))
        self.products = torch.full((self.rows + 1, weight.out_features), 7.0)
        self.output = torch.full((self.rows + 1, self.width), 7.0)
        self.quantized = QuantizedRows.empty(self.rows, self.width)
        given = self.inputs.structure() if weight.kind in ("int8", "int4") else None
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
        quantized = self.quantized
        return self.output[: self.rows], quantized.values, quantized.scales, quantized.totals, quantized.sums


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_one_call_gives_what_two_give(library: Library, kind: str, threads: int) -> None:
    library.set_threads(threads)
    for width, inputs, is_kept in combinations(WIDTHS, (64, 200), (True, False)):
        weight = pack_parts([draws(2 * width, inputs)], kind, KINDS[kind] or 0)
        bias = draws(2 * width) if width % 64 else None
        for number, rows in enumerate(ROWS):
            x, activation = draws(rows, inputs), number % len(ACTIVATIONS)
            calls = [Call(library, weight, x, bias, is_kept, activation) for _ in range(2)]
            found = calls[0].in_one(), calls[1].in_two()
            for one, two in zip(*found, strict=True):
                assert torch.equal(one, two), f"{rows} rows, {inputs} → 2 × {width}, kept: {is_kept}"


def test_a_number_that_is_none_stays_in_its_row(library: Library) -> None:
    weight = pack_parts([draws(128, 64)], "int8", 0)
    x = draws(40, 64)
    whole = Call(library, weight, x, None, True).in_one()[0]
    x[17, 3] = torch.nan
    output, _, scales, *_ = Call(library, weight, x, None, True).in_one()
    assert output[17].isnan().all() and scales.isnan().tolist() == [row == 17 for row in range(40)]
    others = [row for row in range(40) if row != 17]
    assert torch.equal(output[others], whole[others])
