"""Norm, activation, embedding and quantization of rows on GPUs: torch's roundings, and a row by itself."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import pytest
import torch
from torch import Tensor

from penstock.kernels.reference import pointwise, quantized

add_rms_norm = pointwise.add_rms_norm.versions["triton"]
gate = pointwise.gate.versions["triton"]
embedding = pointwise.embedding.versions["triton"]
quantize_rows = quantized.quantize_rows.versions["triton"]

# One in the last place: the interpreter cuts bfloat16 off instead of rounding it, so a chain of steps has several.
CLOSE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 4e-2}


def draws(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize(("rows", "width"), [(1, 56), (3, 1000)])
def test_the_norm_is_of_the_stream_as_it_was_stored(rows, width, dtype):
    original, update = draws(rows, width, dtype=dtype), draws(rows, width, seed=1, dtype=dtype)
    weight, changed = draws(width, seed=2, dtype=dtype), original.clone()
    normed = add_rms_norm(changed, update, weight, 1e-6)
    torch.testing.assert_close(changed, original + update, rtol=CLOSE[dtype], atol=CLOSE[dtype])
    expected = pointwise.rms_norm.reference(changed, weight, 1e-6)
    torch.testing.assert_close(normed, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


def test_an_update_in_another_format_is_rounded_into_the_stream():
    changed, update = draws(3, 64, dtype=torch.float16), draws(3, 64, seed=1)
    expected = changed.clone().add_(update)
    add_rms_norm(changed, update, draws(64), 1e-6)
    assert torch.equal(changed, expected)


def test_without_an_update_the_stream_stays_as_it_is():
    x = draws(3, 64)
    before = x.clone()
    add_rms_norm(x, None, draws(64, seed=1), 1e-6)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_silu_times_the_second_half(dtype):
    gate_up = draws(3, 2 * 1030, dtype=dtype) * 4
    found, expected = gate(gate_up, "silu"), pointwise.gate.reference(gate_up, "silu")
    torch.testing.assert_close(found, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.filterwarnings("ignore:overflow")
def test_the_far_ends_of_silu_are_numbers():
    gate_up = torch.tensor([[-1000.0, 1000.0, 0.0, 2.0, 3.0, 4.0]])
    assert gate(gate_up, "silu").tolist() == [[0.0, 3000.0, 0.0]]


def test_an_id_of_another_rank_gives_zeros():
    table = draws(10, 1030, dtype=torch.bfloat16)
    found = embedding(torch.tensor([3, 12, 13, 22, 23]), table, 13)
    assert torch.equal(found[2:4], table[[0, 9]])
    assert not found[[0, 1, 4]].any()


def _rowwise():
    weight = draws(330, seed=3)
    yield "add_rms_norm", lambda x: add_rms_norm(x.clone(), x.flip(1), weight, 1e-6)
    yield "gate", lambda x: gate(x, "gelu_tanh")
    yield "quantize_rows", lambda x: torch.column_stack(quantize_rows(x))


ROWWISE = dict(_rowwise())


@pytest.mark.parametrize("name", ROWWISE)
def test_a_row_has_the_same_bits_in_any_company(name):
    operation, x = ROWWISE[name], draws(19, 330)
    together = operation(x)
    for first, end in ((0, 1), (18, 19), (3, 6), (2, 19)):
        assert torch.equal(operation(x[first:end]), together[first:end]), f"{first}:{end}"


@pytest.mark.parametrize("name", ROWWISE)
def test_no_rows_give_no_rows(name):
    assert len(ROWWISE[name](draws(0, 330))) == 0
