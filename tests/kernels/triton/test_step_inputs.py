"""A step's inputs made on a GPU: the reference's, and the worker's own for the same rows."""

import numpy
import torch
from builders import interpreted  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.reference.step_inputs import step_inputs
from penstock.worker.steps.batch import step_batch
from penstock.worker.steps.slots import SlotTable
from penstock.worker.steps.step_rows import StepRows

prepare = step_inputs.versions["triton"]


@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=12),
    spare=st.tuples(st.integers(0, 5), st.integers(0, 20)),
    block_size=st.sampled_from([1, 16, 24]),
)
def test_every_token_is_the_one_at_its_place_in_its_slot(rows, spare, block_size):
    starts, counts = numpy.array(rows).T
    spare_rows, spare_tokens = spare
    slots = numpy.arange(len(rows))[::-1] + 1
    histories = torch.arange(len(rows) + 1, dtype=torch.int32)[:, None] * 1000 + torch.arange(70, dtype=torch.int32)
    tables = torch.arange((len(rows) + 1) * 70, dtype=torch.int32).view(-1, 70)
    starts_of_all = numpy.append(starts, numpy.zeros(spare_rows, int))
    slots_of_all = numpy.append(slots, numpy.full(spare_rows, -1))
    query_starts = numpy.append(0, numpy.append(counts, numpy.zeros(spare_rows, int)).cumsum())
    columns = (torch.from_numpy(column.astype(numpy.int32)) for column in (slots_of_all, starts_of_all, query_starts))
    total = int(counts.sum())
    made = prepare(*columns, histories, tables, block_size, total + spare_tokens, 70)
    slot_of_token, positions = slots.repeat(counts), made.positions[:total].numpy()
    expected = numpy.concatenate([start + numpy.arange(count) for start, count in rows])
    assert positions.tolist() == expected.tolist()
    assert made.token_ids[:total].tolist() == (slot_of_token * 1000 + expected).tolist()
    blocks = slot_of_token * 70 + expected // block_size
    assert made.kv_slots[:total].tolist() == (blocks * block_size + expected % block_size).tolist()
    assert made.kv_slots[total:].tolist() == [-1] * spare_tokens
    assert made.context_lengths.tolist() == [*(starts + counts), *[0] * spare_rows]


def test_they_are_what_the_worker_makes_of_its_slots_on_the_host():
    table = SlotTable(6, 200, [500], 16, 1000, torch.device("cpu"))
    generator = torch.Generator().manual_seed(2)
    table.histories.random_(0, 1000, generator=generator)
    table.groups[0].tables.random_(0, 500, generator=generator)
    slots, starts, counts = (numpy.array(column) for column in ([4, 0, 5], [100, 0, 31], [1, 90, 17]))
    nowhere = numpy.zeros(3, bool)
    rows = StepRows(slots, counts, starts, starts + counts, nowhere, nowhere, segments=(None,))
    batch = step_batch(table, rows, memory=None)
    tables = table.groups[0].tables
    query_starts = torch.tensor(batch.query_starts, dtype=torch.int32)
    columns = (torch.from_numpy(column.astype(numpy.int32)) for column in (slots, starts))
    made = prepare(*columns, query_starts, table.histories, tables, 16, 108, batch.groups[0].block_tables.shape[1])
    of_tokens = {"token_ids": batch.token_ids, "positions": batch.positions}
    for name, found in (of_tokens | batch.groups[0]._asdict()).items():
        assert torch.equal(getattr(made, name), found), name
    assert made.context_lengths.tolist() == batch.context_lengths
