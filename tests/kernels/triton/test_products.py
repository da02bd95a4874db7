"""Products on GPUs: every number format, few rows with what stands around them, and bits that don't hang on company.

test_every_kernel.py looks at every kernel in every run, so much of this is for the long one.
"""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

from itertools import product

import pytest
import torch
from builders.cases import for_each
from builders.gpu_products import AROUND, CLOSE, CPU, DTYPES, FORMATS, assert_agrees, grouped, weight_of
from builders.quantized_parts import draws, floats, part
from torch import Tensor

from penstock.kernels.operands import Norm, WeightFormat
from penstock.kernels.reference import products
from penstock.kernels.torch.packed.gpu_weights import GpuWeight, pack
from penstock.kernels.triton.deferred import DeferredProduct, DeferredSum
from penstock.kernels.triton.launch.switches import Switch
from penstock.kernels.triton.launch.tuning import LaunchConfig
from penstock.kernels.triton.products import dequantized, linear
from penstock.kernels.triton.products.few_rows import few_rows
from penstock.kernels.triton.products.few_rows.choice import FLOATS, INT4, INT8, NORMED_ROWS
from penstock.kernels.triton.products.tiles.tiles import FEW_ROWS
from penstock.worker.ranks.parallel import Parallel

# (operation, form of weights): those that promise a row the same bits in any company.
INVARIANT = [
    (products.linear_gpu_invariant, WeightFormat("bf16")),
    (products.linear_wint8_invariant, WeightFormat("int8")),
    (products.linear_wint4_invariant, WeightFormat("int4", 64)),
    (products.linear_int8, WeightFormat("int8")),
    (products.linear_gpu_invariant, WeightFormat("fp32")),
    (products.linear_wint4_invariant, WeightFormat("int4", 32)),
]


def gpu(op, x: Tensor, weight: GpuWeight, bias: Tensor | None = None) -> Tensor:
    return op.versions["triton"](x, weight, bias)


def assert_right(op, x: Tensor, weight: GpuWeight, bias: Tensor | None) -> None:
    found, expected = gpu(op, x, weight, bias), op.reference(x, weight, bias)
    assert found.dtype == x.dtype
    bound = CLOSE[x.dtype] / 2 * float(expected.abs().max())
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=bound)


@pytest.mark.long
@for_each("group", (16, 32, 48, 64, 96, 128, 192, 1000))
def test_groups_of_any_size_keep_their_scales_and_zeros(group):
    """Rows in other formats meet all forms in tests/gpu/test_kernels_at_real_sizes.py."""
    weight = grouped(49, 300, group)
    for rows in (1, 3, 17, 70):
        assert_right(products.linear_wint4, draws(rows, 300, seed=2), weight, draws(49, seed=3))
    for around in ("normed", "added"):
        assert_agrees(products.linear_few_rows, draws(3, 300, seed=2), weight, around)
    assert_agrees(products.linear_few_rows, draws(3, 300, seed=2), grouped(50, 300, group), "gated")


@pytest.mark.long
def test_quantized_rows_have_the_reference_s_bits_and_one_that_is_not_finite_leaves_the_others_alone():
    weight, x, bias = pack([draws(50, 130)], WeightFormat("int8"), CPU), draws(17, 130, seed=1), draws(50, seed=2)
    expected = products.linear_int8.reference(x, weight, bias)
    assert torch.equal(gpu(products.linear_int8, x, weight, bias), expected)
    x[1, 7], expected[1] = torch.inf, torch.nan
    found = gpu(products.linear_int8, x, weight, bias)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("rows, forms", [(20, INVARIANT[:4]), pytest.param(70, INVARIANT, marks=pytest.mark.long)])
def test_a_row_has_the_same_bits_alone_and_in_company(rows, forms):
    for op, form in forms:
        weight, x, bias = pack([draws(40, 270)], form, CPU), draws(rows, 270, seed=1), draws(40, seed=2)
        together = gpu(op, x, weight, bias)
        for first, end in ((0, 1), (rows - 1, rows), (3, rows - 3)):
            assert torch.equal(gpu(op, x[first:end], weight, bias), together[first:end]), (op.name, first, end)


@pytest.mark.long
@for_each(
    "tuning, op, form",
    [
        (linear.TUNINGS["int8"], products.linear_wint8, WeightFormat("int8")),
        (linear.INTEGERS, products.linear_int8, WeightFormat("int8")),
        (linear.TUNINGS["int4"], products.linear_wint4, WeightFormat("int4", 64)),
        (FLOATS, products.linear_few_rows, WeightFormat("fp32")),
        (INT8, products.linear_few_rows, WeightFormat("int8")),
        (INT4, products.linear_few_rows, WeightFormat("int4", 64)),
    ],
    ids=lambda each: f"{each[1].name} {each[2].kind}",
)
def test_every_choice_that_is_tried_computes_the_product(tuning, op, form, monkeypatch):
    weight, x, bias = weight_of(80, 700, form), draws(65, 700, seed=1), draws(80, seed=2)
    for choice in tuning.choices:
        monkeypatch.setattr(tuning, "default", lambda *_, choice=choice: choice)
        if op is products.linear_few_rows:
            for around in ("normed, gated", "added"):
                assert_agrees(op, x[:3], weight, around)
            continue
        assert_right(op, x, weight, bias)
        if tuning is linear.INTEGERS:  # all others leave few rows to another kernel
            assert_right(op, x[:3], weight, bias)


@pytest.mark.long
@for_each("parts", [1, 4])
def test_parts_are_the_same_sum_by_one_program_or_by_several(parts):
    """One program sums up many rows, several programs sum up few."""
    x, bias, matrix = draws(65, 700), draws(40, seed=1), draws(40, 700, seed=2)
    choice = LaunchConfig.of(BLOCK_M=16, BLOCK_N=64, BLOCK_K=64, PARTS=parts)
    weight = pack([matrix], WeightFormat("fp32"), CPU)
    many, few = (linear._computed(rows, weight, bias, None, x.dtype, choice) for rows in (x, x[:3]))
    assert torch.equal(few, many[:3])
    weight = pack([matrix], WeightFormat("int4", 64), CPU)
    many, few = (linear._computed(rows, weight, bias, None, x.dtype, choice) for rows in (x, x[:3]))
    assert torch.equal(few, many[:3])


def test_no_rows_give_no_rows():
    ops = {"bf16": products.linear_gpu, "int8": products.linear_int8, "int4": products.linear_wint4}
    for kind, op in ops.items():
        weight = weight_of(40, 64, WeightFormat(kind, 64))
        assert gpu(op, draws(0, 64), weight).shape == (0, 40), kind
    for is_gated, outputs in ((False, 40), (True, 20)):
        assert few_rows.multiply_few(draws(0, 64), weight, None, None, None, is_gated).shape == (0, outputs)


@for_each("rows, is_on, are_floats", [(70, True, True), (70, False, False), (69, True, False)])
@for_each("form", [WeightFormat("int8"), WeightFormat("int4", 64)], ids=lambda form: form.kind)
def test_so_many_rows_go_by_way_of_floats_unless_that_is_switched_off(monkeypatch, form, rows, is_on, are_floats):
    seen: list[int] = []
    monkeypatch.setattr(dequantized, "_LEAST_ROWS", 70)
    by_floats = linear.linear_dequantized
    monkeypatch.setattr(linear, "linear_dequantized", lambda *given: seen.append(rows) or by_floats(*given))
    monkeypatch.setattr(dequantized, "DEQUANTIZED_PRODUCTS", Switch("PENSTOCK_UNHEARD_OF", is_on, ""))
    weight, x = pack([draws(24, 64, seed=1)], form, CPU), draws(rows, 64, seed=2).bfloat16()
    expected = getattr(products, f"linear_w{form.kind}").reference(x.float(), weight, None)
    assert (linear.linear_weight_only(x, weight, None).float() - expected).norm() < 1e-2 * expected.norm()
    assert bool(seen) == are_floats


# --- few rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@for_each("rows", (1, 2, 8, NORMED_ROWS, NORMED_ROWS + 1, FEW_ROWS))
def test_a_product_of_few_rows_does_what_stands_around_it(rows):
    for form, around in product(FORMATS, AROUND):
        x = draws(rows, 200, dtype=DTYPES.get(form.kind, torch.float32))
        bias = draws(70, seed=1, dtype=x.dtype) if rows % 2 else None
        assert_agrees(products.linear_few_rows, x, weight_of(70, 200, form), around, bias)


def test_a_sum_of_ranks_that_takes_the_stream_along_is_the_stream_behind_it():
    """Rank 0's part with the stream, and the others' without it."""
    stream, parts = draws(3, 70), []
    for rank in range(2):
        product = DeferredProduct(draws(3, 200, seed=rank), weight_of(70, 200, WeightFormat("fp32")), None)
        given = stream.clone()
        assert DeferredSum(product, Parallel(rank, 2)).added_to(given) is given
        parts.append((given, product.tensor))
    (first, first_product), (second, second_product) = parts
    torch.testing.assert_close(first + second, stream + first_product + second_product)
    assert torch.equal(second, second_product)


def test_the_order_of_a_checkpoints_inputs_is_followed_after_the_norm():
    order = torch.randperm(192, generator=torch.Generator().manual_seed(5)).int()
    ordered = part(20, 192, 64, order=order, dtype=torch.float32)
    x, norm = draws(3, 192), Norm(draws(192, seed=1), 1e-6)
    found = few_rows.multiply_few(x, pack([ordered], WeightFormat("bf16"), CPU), None, norm)
    normed = torch.nn.functional.rms_norm(x, (192,), norm.weight, norm.epsilon)
    torch.testing.assert_close(found, normed @ floats(ordered).T, rtol=1e-4, atol=1e-4)


def test_a_stream_whose_numbers_are_large_stays_finite_in_float16():
    x = draws(2, 64, dtype=torch.float16)
    x[:, 5] = 30_000.0
    norm = Norm(torch.full((64,), 8.0).half(), 1e-6)
    weight = weight_of(33, 64, WeightFormat("fp16"))
    found = few_rows.multiply_few(x, weight, None, norm)
    expected = products.linear_few_rows.reference(x, weight, None, norm)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


def test_parts_that_have_no_inputs_add_nothing():
    """Three steps of inputs in eight parts."""
    choice = LaunchConfig.of(BLOCK_N=32, BLOCK_K=32, PARTS=8)
    weight, x = weight_of(20, 70, WeightFormat("fp32")), draws(2, 70)
    found = few_rows._launch(x, weight, None, None, False, True, None, choice)
    torch.testing.assert_close(found, products.linear_few_rows.reference(x, weight, None), rtol=1e-5, atol=1e-5)


def test_choices_are_tried_without_a_trace_in_the_stream(monkeypatch):
    weight, x, stream = weight_of(20, 64, WeightFormat("fp32")), draws(2, 64), draws(2, 20, seed=1)
    expected = products.linear_few_rows.reference(x, weight, None, None, stream.clone())

    def trying(key, launch):
        launch(FLOATS.choices[0])
        return FLOATS.choices[1]

    monkeypatch.setattr(FLOATS, "choice", trying)
    torch.testing.assert_close(few_rows.multiply_few(x, weight, None, None, stream), expected, rtol=1e-5, atol=1e-5)
