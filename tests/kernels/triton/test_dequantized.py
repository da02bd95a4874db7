"""Very many rows meet weights of 8 and 4 bits as floats, others meet them as they are."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import pytest
from builders.gpu_products import CPU, draws

from penstock.kernels import WeightFormat
from penstock.kernels.gpu_weights import pack
from penstock.kernels.reference import products as reference
from penstock.kernels.triton.products import dequantized, linear, linear_int4
from penstock.kernels.triton.switches import Switch

MANY = dequantized._LEAST_ROWS
PRODUCTS = {"int8": (linear, linear.linear_wint8), "int4": (linear_int4, linear_int4.linear_wint4)}


@pytest.mark.parametrize(("rows", "is_on", "are_floats"), [(MANY, True, True), (MANY, False, False), (70, True, False)])
@pytest.mark.parametrize("form", [WeightFormat("int8"), WeightFormat("int4", 64)], ids=lambda form: form.kind)
def test_so_many_rows_go_by_way_of_floats_unless_that_is_switched_off(monkeypatch, form, rows, is_on, are_floats):
    (module, multiply), seen = PRODUCTS[form.kind], []
    by_floats = module.linear_dequantized
    monkeypatch.setattr(module, "linear_dequantized", lambda *given: seen.append(rows) or by_floats(*given))
    monkeypatch.setattr(dequantized, "DEQUANTIZED_PRODUCTS", Switch("PENSTOCK_UNHEARD_OF", is_on, ""))
    weight, x = pack([draws(24, 64, seed=1)], form, CPU), draws(rows, 64, seed=2).bfloat16()
    expected = getattr(reference, f"linear_w{form.kind}").reference(x.float(), weight, None)
    assert (multiply(x, weight, None).float() - expected).norm() < 1e-2 * expected.norm()
    assert bool(seen) == are_floats
