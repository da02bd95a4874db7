"""Steps that a GPU captures, on a CPU: a capture is called again instead, so its inputs and its spare rows are real."""

import pytest

from penstock.worker.backends.triton.decoder import fitting_context, fitting_size


def test_a_graph_has_few_spare_rows_and_never_more_than_there_are_slots():
    for rows in range(1, 257):
        size = fitting_size(rows, 256)
        assert rows <= size <= 256
        assert size - rows <= max(3, rows // 4), (rows, size)
    assert fitting_size(250, 250) == 250


def test_sizes_that_were_asked_for_are_taken_and_others_made_where_none_holds_the_step():
    assert [fitting_size(rows, 64, (8, 32)) for rows in (1, 8, 9, 32)] == [8, 8, 32, 32]
    assert fitting_size(33, 64, (8, 32)) == 40


@pytest.mark.parametrize(
    "context, longest, bound", [(1, 300, 300), (1, 9000, 1024), (1025, 9000, 4096), (5000, 9000, 9000)]
)
def test_a_graph_is_for_contexts_up_to_a_bound(context, longest, bound):
    assert fitting_context(context, longest) == bound
