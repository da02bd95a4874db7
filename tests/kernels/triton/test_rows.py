"""Norm, activation, embedding and quantization of rows on GPUs, and the inputs of a step made there."""

from builders import interpreted  # isort: skip  before anything that imports triton

import numpy
import pytest
import torch
import triton
from builders.cases import for_each
from builders.quantized_parts import draws
from triton import language as tl

from penstock.kernels.reference import pointwise, quantized
from penstock.kernels.reference.step_inputs import step_inputs
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.steps.batch import step_batch
from penstock.worker.steps.slots import SlotTable
from penstock.worker.steps.step_rows import StepRows

add_rms_norm = pointwise.add_rms_norm.versions["triton"]
gate = pointwise.gate.versions["triton"]
embedding = pointwise.embedding.versions["triton"]
quantize_rows = quantized.quantize_rows.versions["triton"]
prepare = step_inputs.versions["triton"]

# One in the last place: the interpreter cuts bfloat16 off instead of rounding it, so a chain of steps has several.
CLOSE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 4e-2}


@for_each("dtype", CLOSE)
def test_norms_and_gates_are_right_in_every_format(dtype):
    for rows, width in ((1, 56), (3, 1000)):
        original, update = draws(rows, width, dtype=dtype), draws(rows, width, seed=1, dtype=dtype)
        weight, changed = draws(width, seed=2, dtype=dtype), original.clone()
        normed = add_rms_norm(changed, update, weight, 1e-6)
        torch.testing.assert_close(changed, original + update, rtol=CLOSE[dtype], atol=CLOSE[dtype])
        expected = pointwise.rms_norm.reference(changed, weight, 1e-6)  # of the stream as it was stored
        torch.testing.assert_close(normed, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])
    gate_up = draws(3, 2 * 1030, dtype=dtype) * 4
    found, expected = gate(gate_up, "silu"), pointwise.gate.reference(gate_up, "silu")
    torch.testing.assert_close(found, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


def test_an_update_is_rounded_into_the_stream_which_stays_as_it_is_without_one():
    changed, update = draws(3, 64, dtype=torch.float16), draws(3, 64, seed=1)
    expected = changed.clone().add_(update)
    add_rms_norm(changed, update, draws(64), 1e-6)
    assert torch.equal(changed, expected)
    add_rms_norm(changed, None, draws(64, seed=1), 1e-6)
    assert torch.equal(changed, expected)


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


@for_each("name", ROWWISE)
def test_a_row_has_the_same_bits_in_any_company(name):
    operation, x = ROWWISE[name], draws(19, 330)
    together = operation(x)
    for first, end in ((0, 1), (18, 19), (3, 6), (2, 19)):
        assert torch.equal(operation(x[first:end]), together[first:end]), f"{first}:{end}"
    assert len(operation(x[:0])) == 0


def test_a_steps_inputs_are_what_the_worker_makes_of_its_slots_on_the_host():
    table = SlotTable(6, 200, [500], 16, 1000, TensorDevice(torch.device("cpu")))
    generator = torch.Generator().manual_seed(2)
    table.histories.random_(0, 1000, generator=generator)
    table.groups[0].tables.random_(0, 500, generator=generator)
    slots, starts, counts = (numpy.array(column) for column in ([4, 0, 5], [100, 0, 31], [1, 90, 17]))
    nowhere = numpy.zeros(3, bool)
    rows = StepRows(slots, counts, starts, starts + counts, nowhere, nowhere, 0 * counts, segments=(None,))
    batch = step_batch(table, rows, memory=None)
    tables = table.groups[0].tables
    query_starts = torch.tensor(batch.query_starts, dtype=torch.int32)
    columns = (torch.from_numpy(column.astype(numpy.int32)) for column in (slots, starts))
    made = prepare(*columns, query_starts, table.histories, tables, 16, 108, batch.groups[0].block_tables.shape[1])
    of_tokens = {"token_ids": batch.token_ids, "positions": batch.positions}
    for name, found in (of_tokens | batch.groups[0]._asdict()).items():
        assert torch.equal(getattr(made, name), found), name
    assert made.context_lengths.tolist() == batch.context_lengths


def _double(numbers):
    tl.store(numbers, tl.load(numbers) + tl.load(numbers))


@for_each("dtype", [torch.int8, torch.int32, torch.uint8])
def test_a_sum_beyond_its_integers_is_told(dtype):
    with interpreted.interpretation():
        double = triton.jit(_double)
    numbers = torch.tensor([torch.iinfo(dtype).max // 2], dtype=dtype)
    double[(1,)](numbers)
    assert numbers.item() == torch.iinfo(dtype).max - 1
    with pytest.raises(triton.runtime.errors.InterpreterError, match="overflows: add"):
        double[(1,)](numbers)
