"""Weights in 8-bit floats that meet rows in 8-bit floats: what is taken as it is, and what products are given.

torch multiplies with scales by output on any device, by block on Hopper alone: there a stand-in reads what it would.
"""

from builders import interpreted  # isort: skip  before anything that imports triton

import numpy
import torch
import torch.nn.functional as F
from builders.cases import for_each
from builders.float8_forms import FLOAT8_FORMS
from builders.hand_planned import new, plan, sampled
from builders.quantized_model import float8_model
from builders.quantized_parts import draws
from builders.runner_harness import no_mask, slotted_runner

from penstock.kernels.arrays import FLOAT8_E4M3, FLOAT8_E5M2
from penstock.kernels.reference.products import linear_float8 as formula
from penstock.kernels.stored.float8 import Float8Part
from penstock.kernels.torch.packed.gpu_float8 import float8_rows, pack_float8
from penstock.kernels.triton.launch.switches import Switch
from penstock.kernels.triton.products import float8
from penstock.worker.backends.triton import backend

CPU = torch.device("cpu")


def part(outputs: int, inputs: int, block: tuple[int, int], offset=(0, 0), dtype=FLOAT8_E4M3) -> Float8Part:
    chance = numpy.random.default_rng(outputs + inputs)
    counts = [-(-(size + first) // each) for size, first, each in zip((outputs, inputs), offset, block, strict=True)]
    scales = chance.random(counts, numpy.float32) + 0.1
    return Float8Part(chance.standard_normal((outputs, inputs)).astype(dtype), scales, block, offset)


@for_each(
    "parts",
    [
        [part(48, 64, (48, 64)), part(16, 64, (16, 64))],  # a scale for each of two matrices
        [part(48, 64, (1, 64))],
        [part(32, 64, (24, 64), offset=(5, 0))],
        [part(128, 256, (128, 128)), part(256, 256, (128, 128))],
    ],
)
def test_a_weight_has_the_numbers_of_the_checkpoint(parts):
    weight = pack_float8(parts, CPU)
    assert weight is not None and weight.kinds == ("fp8",)
    assert numpy.array_equal(weight.floats().numpy(), numpy.concatenate([each.dequantized() for each in parts]))


@for_each(
    "parts",
    [
        [part(40, 64, (1, 64))],  # outputs that products don't take
        [part(48, 64, (1, 16))],
        [part(128, 192, (128, 128))],
        [part(128, 256, (128, 128), offset=(64, 0))],
        [part(48, 64, (1, 64), dtype=FLOAT8_E5M2)],
        [part(128, 256, (128, 128)), part(128, 256, (1, 256))],
        [part(48, 64, (1, 64)), numpy.zeros((16, 64), numpy.float32)],
        [],
    ],
)
def test_what_no_product_takes_is_left_to_others(parts):
    assert pack_float8(parts, CPU) is None


def test_rows_are_rounded_by_their_largest_number_and_one_that_is_not_finite_leaves_the_others_alone():
    x = draws(4, 256) * torch.tensor([[1.0], [1e-30], [1e30], [0.0]])
    x[0, 7] = torch.inf
    for group in (128, 256):
        values, scales = float8_rows(x, group)
        found = (values.float().unflatten(1, (-1, group)) * scales[:, :, None]).flatten(1)
        assert found[0].isnan().any() and torch.equal(found[3], x[3])
        close = (found[1:3] - x[1:3]).abs() <= x[1:3].abs() / 16 + scales[1:3].amax(1, keepdim=True) / 512
        assert close.all() and values.float()[1:3].abs().max() == 448


def as_torch_says(a, b, scale_a, recipe_a, scale_b, recipe_b, bias=None, output_dtype=None):
    """The product by what torch's pages say of scales for blocks: those of rows lie group by group, those of a
    weight's inputs are padded to four."""
    kinds = F.ScalingType
    if (recipe_a, recipe_b) != (kinds.BlockWise1x128, kinds.BlockWise128x128):
        raise ValueError("Invalid scaling configuration")
    (rows, inputs), outputs = a.shape, b.shape[1]
    assert rows % 4 == 0 and scale_a.shape == (rows, inputs // 128) and scale_a.stride() == (1, rows)
    assert scale_b.stride() == (1, scale_b.shape[0]) and scale_b.shape[0] % 4 == 0 and bias is None
    of_inputs = scale_b[: inputs // 128, : outputs // 128].repeat_interleave(128, 0).repeat_interleave(128, 1)
    return (a.float() * scale_a.repeat_interleave(128, 1) @ (b.float() * of_inputs)).to(output_dtype)


@for_each("rows", [1, 4, 7])
def test_scales_by_block_are_given_as_torch_wants_them(rows, monkeypatch):
    monkeypatch.setattr(F, "scaled_mm", as_torch_says)
    weight = pack_float8([part(128, 384, (128, 128)), part(256, 384, (128, 128))], CPU)
    x, bias = draws(rows, 384).bfloat16(), draws(384, seed=1)
    found, expected = float8.linear_float8(x, weight, bias).float(), formula.reference(x, weight, bias).float()
    assert found.shape == (rows, 384) and (found - expected).norm() < 1e-2 * expected.norm()


@for_each("is_blocked, is_offered", [(False, True), (True, False)])
def test_a_form_of_scales_is_used_where_torch_has_it_and_it_is_right(is_blocked, is_offered, monkeypatch):
    float8.is_right.cache_clear()
    assert float8.is_right(CPU, torch.bfloat16, is_blocked) == is_offered
    float8.is_right.cache_clear()
    monkeypatch.setattr(F, "scaled_mm", lambda *given, **named: torch.zeros(5, 256, dtype=torch.bfloat16))
    assert not float8.is_right(CPU, torch.bfloat16, is_blocked)
    float8.is_right.cache_clear()


@for_each("is_on, kind", [(True, "fp8"), (False, "int8")])
def test_a_checkpoint_in_8_bit_floats_is_taken_as_it_is_where_that_is_switched_on(is_on, kind, tmp_path, monkeypatch):
    float8.is_right.cache_clear()
    for module in (float8, backend):
        monkeypatch.setattr(module, "FLOAT8_PRODUCTS", Switch("PENSTOCK_UNHEARD_OF", is_on, ""))
    form = next(form for form in FLOAT8_FORMS if str(form) == "compressed-channel")
    folder, _ = float8_model(tmp_path, form, num_hidden_layers=1)
    model = interpreted.on_triton(folder, dtype="bfloat16")
    assert {"fp8", "int8"} & set(model.report.kinds) == {kind}
    entering = plan(0, [(0, 6, [0])], new=[new(0, range(5, 11))])
    [[token]] = sampled(slotted_runner(model).step(entering, no_mask))
    assert 0 <= token < model.vocab_size
