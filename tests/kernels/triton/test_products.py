"""Products on GPUs: odd shapes, every number format, and rows whose bits don't depend on company."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import pytest
import torch
from torch import Tensor

from penstock.kernels.gpu_weights import GpuWeight, pack
from penstock.kernels.operands import WeightFormat
from penstock.kernels.quantized_part import QuantizedPart
from penstock.kernels.reference import products
from penstock.kernels.triton.products import linear, linear_int4
from penstock.kernels.triton.tuning import LaunchConfig

pytestmark = pytest.mark.long  # test_versions.py and test_compiled.py look at every kernel in every run

CPU = torch.device("cpu")
FLOATS = ("fp32", "fp16", "bf16")
ROWS = (1, 3, 17, 70)
# (operation, forms of weights): those that promise a row the same bits in any company.
INVARIANT = [
    (products.linear_gpu_invariant, WeightFormat("fp32")),
    (products.linear_gpu_invariant, WeightFormat("bf16")),
    (products.linear_wint8_invariant, WeightFormat("int8")),
    (products.linear_wint4_invariant, WeightFormat("int4", 32)),
    (products.linear_wint4_invariant, WeightFormat("int4", 64)),
    (products.linear_int8, WeightFormat("int8")),
]
# What an output may be off by, of the largest: the interpreter cuts bfloat16 off instead of rounding it.
CLOSE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def draws(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def gpu(op, x: Tensor, weight: GpuWeight, bias: Tensor | None = None) -> Tensor:
    return op.versions["triton"](x, weight, bias)


def assert_agrees(op, x: Tensor, weight: GpuWeight, bias: Tensor | None) -> None:
    found, expected = gpu(op, x, weight, bias), op.reference(x, weight, bias)
    assert found.dtype == x.dtype
    bound = CLOSE[x.dtype] * float(expected.abs().max())
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=bound)


def grouped(outputs: int, inputs: int, group: int, seed: int = 0, order: Tensor | None = None) -> QuantizedPart:
    """As a checkpoint with zeros has it."""
    generator = torch.Generator().manual_seed(seed)
    groups = -(-inputs // group)
    values = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8, generator=generator)
    zeros = torch.randint(0, 16, (outputs, groups), dtype=torch.uint8, generator=generator)
    return QuantizedPart(values, torch.rand(outputs, groups, generator=generator).half(), zeros, group, order)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", FLOATS)
def test_rows_meet_float_weights_in_their_own_format(kind, rows):
    weight = pack([draws(30, 200), draws(41, 200, seed=1)], WeightFormat(kind), CPU)
    x, bias = draws(rows, 200, seed=2, dtype=weight.values.dtype), draws(71, seed=3, dtype=weight.values.dtype)
    assert_agrees(products.linear_gpu, x, weight, bias)
    assert_agrees(products.linear_gpu_invariant, x, weight, None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 17])
def test_rows_of_16_bits_meet_integers_without_loss(rows, dtype):
    x, bias, matrix = draws(rows, 176, dtype=dtype), draws(50, seed=1, dtype=dtype), draws(50, 176, seed=2)
    int8, int4 = pack([matrix], WeightFormat("int8"), CPU), pack([matrix], WeightFormat("int4", 32), CPU)
    assert_agrees(products.linear_wint8, x, int8, bias)
    assert_agrees(products.linear_int8, x, int8, bias)
    assert_agrees(products.linear_wint4, x, int4, bias)


@pytest.mark.parametrize("group", [16, 32, 48, 64, 96, 128, 192, 1000])
def test_groups_of_any_size_keep_their_scales_and_zeros(group):
    weight = pack([grouped(40, 300, group), grouped(9, 300, group, seed=1)], WeightFormat("bf16"), CPU)
    assert weight.kind == "int4"
    assert_agrees(products.linear_wint4, draws(3, 300, seed=2), weight, draws(49, seed=3))


def test_the_order_of_a_checkpoints_inputs_is_followed():
    order = torch.randperm(192, generator=torch.Generator().manual_seed(5)).int()
    parts = [grouped(20, 192, 64, order=order), grouped(30, 192, 64, seed=1, order=order.clone())]
    weight, x = pack(parts, WeightFormat("bf16"), CPU), draws(3, 192)
    expected = x @ torch.cat([part.dequantized() for part in parts]).T
    torch.testing.assert_close(gpu(products.linear_wint4, x, weight), expected, rtol=1e-4, atol=1e-4)


def test_quantized_rows_have_the_reference_s_bits():
    weight, x, bias = pack([draws(50, 130)], WeightFormat("int8"), CPU), draws(17, 130, seed=1), draws(50, seed=2)
    assert torch.equal(gpu(products.linear_int8, x, weight, bias), products.linear_int8.reference(x, weight, bias))


def test_a_row_that_is_not_finite_gives_no_numbers_and_leaves_the_others_alone():
    weight, x = pack([draws(50, 130)], WeightFormat("int8"), CPU), draws(3, 130, seed=1)
    clean = gpu(products.linear_int8, x, weight)
    x[1, 7] = torch.inf
    found = gpu(products.linear_int8, x, weight)
    assert found[1].isnan().all()
    assert torch.equal(found[::2], clean[::2])


@pytest.mark.parametrize(("op", "form"), INVARIANT, ids=lambda each: getattr(each, "name", None) or str(each))
def test_a_row_has_the_same_bits_in_any_company(op, form):
    weight, x, bias = pack([draws(40, 270)], form, CPU), draws(70, 270, seed=1), draws(40, seed=2)
    together = gpu(op, x, weight, bias)
    for first, end in ((0, 1), (69, 70), (3, 67)):
        assert torch.equal(gpu(op, x[first:end], weight, bias), together[first:end]), f"{first}:{end}"


@pytest.mark.parametrize(
    ("tuning", "op", "form"),
    [
        (linear._WEIGHT_ONLY, products.linear_wint8, WeightFormat("int8")),
        (linear._INTEGERS, products.linear_int8, WeightFormat("int8")),
        (linear_int4._TUNING, products.linear_wint4, WeightFormat("int4", 64)),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_every_choice_that_is_tried_computes_the_product(tuning, op, form, monkeypatch):
    weight, x, bias = pack([draws(40, 300)], form, CPU), draws(65, 300, seed=1), draws(40, seed=2)
    for choice in tuning.choices:
        monkeypatch.setattr(tuning, "default", lambda *_, choice=choice: choice)
        assert_agrees(op, x, weight, bias)
        if tuning is linear._INTEGERS:  # all others leave few rows to another kernel
            assert_agrees(op, x[:3], weight, bias)


@pytest.mark.parametrize("parts", [1, 4])
def test_parts_are_the_same_sum_by_one_program_or_by_several(parts):
    """Of many rows by one program, of few by several."""
    x, bias, matrix = draws(65, 700), draws(40, seed=1), draws(40, 700, seed=2)
    choice = LaunchConfig.of(BLOCK_M=16, BLOCK_N=64, BLOCK_K=64, PARTS=parts)
    weight = pack([matrix], WeightFormat("fp32"), CPU)
    many, few = (linear._computed(rows, weight, bias, None, x.dtype, choice) for rows in (x, x[:3]))
    assert torch.equal(few, many[:3])
    choice = LaunchConfig.of(BLOCK_M=16, BLOCK_N=64, PARTS=parts)
    weight = pack([matrix], WeightFormat("int4", 64), CPU)
    many, few = (linear_int4._computed(rows, weight, bias, choice) for rows in (x, x[:3]))
    assert torch.equal(few, many[:3])


@pytest.mark.parametrize(
    "form", [WeightFormat("bf16"), WeightFormat("int8"), WeightFormat("int4", 64)], ids=lambda form: form.kind
)
def test_no_rows_give_no_rows(form):
    weight = pack([draws(40, 64)], form, CPU)
    ops = {"bf16": products.linear_gpu, "int8": products.linear_int8, "int4": products.linear_wint4}
    assert gpu(ops[form.kind], draws(0, 64), weight).shape == (0, 40)
