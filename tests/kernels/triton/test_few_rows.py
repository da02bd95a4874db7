"""Products of few rows, with what a layer does around them: every format, number of rows, and choice."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import pytest
import torch
from builders.gpu_products import AROUND, DTYPES, FORMATS, assert_agrees, draws, grouped, weight_of

from penstock.kernels.gpu_weights import pack
from penstock.kernels.operands import Norm, WeightFormat
from penstock.kernels.quantized_part import QuantizedPart
from penstock.kernels.reference.products import linear_few_rows
from penstock.kernels.triton.products import few_rows
from penstock.kernels.triton.products.few_rows_choice import FLOATS, INT4, INT8, NORMED_ROWS
from penstock.kernels.triton.products.tiles import FEW_ROWS
from penstock.kernels.triton.tuning import LaunchConfig, Tuning


@pytest.mark.long
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.kind)
@pytest.mark.parametrize("rows", [1, 2, 8, NORMED_ROWS, NORMED_ROWS + 1, FEW_ROWS])
def test_a_product_does_what_stands_around_it(form, around, rows):
    x = draws(rows, 200, dtype=DTYPES.get(form.kind, torch.float32))
    assert_agrees(
        linear_few_rows, x, weight_of(70, 200, form), around, draws(70, seed=1, dtype=x.dtype) if rows % 2 else None
    )


@pytest.mark.long
@pytest.mark.parametrize("around", ["normed", "added", "gated"])
@pytest.mark.parametrize("group", [16, 32, 48, 64, 128, 192, 1000])
@pytest.mark.parametrize("rows", [1, 3])
def test_groups_of_any_size_keep_their_scales_and_zeros(rows, group, around):
    weight = grouped(50, 300, group)
    assert weight.kind == "int4"
    assert_agrees(linear_few_rows, draws(rows, 300, seed=2), weight, around)


def test_the_order_of_a_checkpoints_inputs_is_followed_after_the_norm():
    generator = torch.Generator().manual_seed(5)
    order = torch.randperm(192, generator=generator).int()
    values = torch.randint(0, 16, (20, 192), dtype=torch.uint8, generator=generator)
    part = QuantizedPart(values, torch.rand(20, 3, generator=generator), None, 64, order)
    weight = pack([part], WeightFormat("bf16"), torch.device("cpu"))
    x, norm = draws(3, 192), Norm(draws(192, seed=1), 1e-6)
    found = few_rows.multiply_few(x, weight, None, norm)
    normed = torch.nn.functional.rms_norm(x, (192,), norm.weight, norm.epsilon)
    torch.testing.assert_close(found, normed @ part.dequantized().T, rtol=1e-4, atol=1e-4)


def test_a_stream_whose_numbers_are_large_stays_finite_in_float16():
    x = draws(2, 64, dtype=torch.float16)
    x[:, 5] = 30_000.0
    norm = Norm(torch.full((64,), 8.0).half(), 1e-6)
    weight = weight_of(33, 64, WeightFormat("fp16"))
    found = few_rows.multiply_few(x, weight, None, norm)
    expected = linear_few_rows.reference(x, weight, None, norm)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("tuning", "form"),
    [(FLOATS, WeightFormat("fp32")), (INT8, WeightFormat("int8")), (INT4, WeightFormat("int4", 64))],
    ids=lambda each: getattr(each, "name", ""),
)
def test_every_choice_that_is_tried_computes_the_product(tuning: Tuning, form: WeightFormat, monkeypatch):
    weight, x = weight_of(80, 700, form), draws(3, 700)
    for choice in tuning.choices:
        monkeypatch.setattr(tuning, "default", lambda *_, choice=choice: choice)
        for around in ("normed, gated", "added"):
            assert_agrees(linear_few_rows, x, weight, around)


def test_parts_that_have_no_inputs_add_nothing():
    """Three steps of inputs in eight parts."""
    choice = LaunchConfig.of(BLOCK_N=32, BLOCK_K=32, PARTS=8)
    weight, x = weight_of(20, 70, WeightFormat("fp32")), draws(2, 70)
    found = few_rows._launch(x, weight, None, None, False, None, choice)
    torch.testing.assert_close(found, linear_few_rows.reference(x, weight, None), rtol=1e-5, atol=1e-5)


def test_choices_are_tried_without_a_trace_in_the_stream(monkeypatch):
    weight, x, stream = weight_of(20, 64, WeightFormat("fp32")), draws(2, 64), draws(2, 20, seed=1)
    expected = linear_few_rows.reference(x, weight, None, None, stream.clone())

    def trying(key, launch):
        launch(FLOATS.choices[0])
        return FLOATS.choices[1]

    monkeypatch.setattr(FLOATS, "choice", trying)
    torch.testing.assert_close(few_rows.multiply_few(x, weight, None, None, stream), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_gated", [False, True])
def test_no_rows_give_no_rows(is_gated):
    weight = weight_of(40, 64, WeightFormat("bf16"))
    assert few_rows.multiply_few(draws(0, 64), weight, None, None, None, is_gated).shape == (0, 20 if is_gated else 40)
