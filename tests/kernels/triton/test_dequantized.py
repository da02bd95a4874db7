"""Many rows may meet weights that were made floats: where that was measured to be faster, and agrees."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import pytest
import torch

from penstock.kernels import WeightForm
from penstock.kernels.gpu_weights import pack
from penstock.kernels.reference import products as reference
from penstock.kernels.triton.products import dequantized
from penstock.kernels.triton.products.linear import linear_wint8
from penstock.kernels.triton.products.linear_int4 import linear_wint4

CPU = torch.device("cpu")
PRODUCTS = {"int8": linear_wint8, "int4": linear_wint4}


@pytest.fixture(params=[("int8", 0), ("int4", 64)], ids=lambda form: form[0])
def weight(request):
    return pack([torch.randn(24, 64, generator=torch.Generator().manual_seed(1))], WeightForm(*request.param), CPU)


def product(monkeypatch, weight, rows: int, choice) -> tuple[torch.Tensor, list[int]]:
    """And how many rows each product by way of floats had."""
    seen: list[int] = []
    by_floats = dequantized.linear_dequantized

    def noting(x, *rest):
        seen.append(len(x))
        return by_floats(x, *rest)

    monkeypatch.setattr(dequantized, "linear_dequantized", noting)
    dequantized.is_right.cache_clear()
    monkeypatch.setitem(dequantized._TUNING._known, (2, 24, 64, weight.group_size), choice)
    x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    found = PRODUCTS[weight.kind](x, weight, None)
    expected = getattr(reference, f"linear_w{weight.kind}").reference(x.float(), weight, None)
    assert (found.float() - expected).norm() < 1e-2 * expected.norm()
    return found, [count for count in seen if count == rows]


def test_many_rows_go_the_way_that_was_faster(monkeypatch, weight):
    assert product(monkeypatch, weight, dequantized.LEAST_ROWS, dequantized._FLOATS)[1] == [1024]
    assert product(monkeypatch, weight, dequantized.LEAST_ROWS, dequantized._PACKED)[1] == []


def test_fewer_rows_meet_the_weight_as_it_is(monkeypatch, weight):
    assert product(monkeypatch, weight, 70, dequantized._FLOATS)[1] == []


def test_where_it_does_not_agree_it_is_not_used(monkeypatch, weight):
    monkeypatch.setattr(dequantized, "_TOLERANCE", -1.0)
    assert product(monkeypatch, weight, dequantized.LEAST_ROWS, dequantized._FLOATS)[1] == []
    dequantized.is_right.cache_clear()
