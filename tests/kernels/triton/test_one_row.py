"""The product of one row, with what a layer does around it: every format, every choice, and what bits are as floats."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import numpy
import pytest
import torch
from builders.gpu_products import DTYPES, FORMS, assert_agrees, draws, grouped, weight_of

from penstock.kernels.forms import WeightForm
from penstock.kernels.reference.few_rows import linear_few_rows
from penstock.kernels.triton.products import few_rows
from penstock.kernels.triton.products.bits_as_floats import FACTOR, place_of, power_of
from penstock.kernels.triton.products.one_row import is_in_words
from penstock.kernels.triton.products.one_row_choice import TUNINGS
from penstock.kernels.triton.switches import Switch
from penstock.kernels.triton.tuning import Choice

# Rows of float32, where rounding them would hide what is wrong.
EXACT = DTYPES | {"int4": torch.float32, "int8": torch.float32}


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch):
    monkeypatch.setattr(few_rows, "ONE_ROW_PRODUCTS", Switch("PENSTOCK_UNHEARD_OF", True, ""))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
def test_a_row_alone_has_a_product_of_its_own_where_that_is_switched_on(form, monkeypatch):
    launched, launch = [], few_rows.launch_row
    monkeypatch.setattr(few_rows, "launch_row", lambda *given: launched.append(len(given[0])) or launch(*given))
    x = draws(1, 64, dtype=DTYPES.get(form.kind, torch.float32))
    for is_on in (True, False):
        monkeypatch.setattr(few_rows, "ONE_ROW_PRODUCTS", Switch("PENSTOCK_UNHEARD_OF", is_on, ""))
        assert_agrees(linear_few_rows, x, weight_of(20, 64, form), "normed")
    assert launched == [1]


@pytest.mark.parametrize(("first", "count"), [(first, 8) for first in (0, 8, 16, 24)] + [(4 * n, 4) for n in range(8)])
def test_bits_of_a_word_are_exact_as_floats_with_what_they_meet(first, count):
    values = numpy.arange(1 << count, dtype=numpy.int64)
    floats = (values << place_of(first)).astype(numpy.uint32).view(numpy.float32)
    assert (floats * numpy.float32(2.0 ** power_of(first)) == values * FACTOR.value).all()


def test_the_order_of_a_checkpoints_inputs_is_followed_after_the_norm():
    order = torch.randperm(192, generator=torch.Generator().manual_seed(5)).int()
    assert_agrees(linear_few_rows, draws(1, 192), grouped(20, 192, 64, order), "normed")


@pytest.mark.parametrize("form", [WeightForm("int8"), WeightForm("int4", 32)], ids=lambda form: form.kind)
def test_large_and_small_numbers_of_a_row_count_as_they_are(form):
    weight = weight_of(20, 64, form)
    for factor in (2.0**35, 2.0**-40):
        x = draws(1, 64) * factor
        assert_agrees(linear_few_rows, x, weight, "alone")


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
def test_every_choice_that_is_tried_computes_the_product(form, monkeypatch):
    tuning, weight = TUNINGS[form.kind], weight_of(40, 300, form)
    x = draws(1, 300, dtype=EXACT.get(form.kind, torch.float32))
    for choice in tuning.choices:
        monkeypatch.setattr(tuning, "default", lambda *_, choice=choice: choice)
        assert_agrees(linear_few_rows, x, weight, "added")


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
@pytest.mark.parametrize("parts", [1, 3, 8])
def test_parts_of_the_inputs_are_added_to_the_whole(form, parts, monkeypatch):
    choice = Choice.of(BLOCK_N=8, WORDS=16, PARTS=parts)
    monkeypatch.setattr(TUNINGS[form.kind], "default", lambda *_: choice)
    x = draws(1, 328, dtype=EXACT.get(form.kind, torch.float32))
    assert_agrees(linear_few_rows, x, weight_of(36, 328, form), "normed, gated")


def test_lines_that_are_no_whole_words_are_told_apart():
    assert is_in_words(weight_of(8, 33, WeightForm("fp32"))) and is_in_words(weight_of(8, 33, WeightForm("int4", 32)))
    assert not is_in_words(weight_of(8, 33, WeightForm("bf16"))) and not is_in_words(
        weight_of(8, 34, WeightForm("int8"))
    )
