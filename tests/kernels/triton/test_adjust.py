"""Masks and penalties on a GPU: the reference's bits, however often a token stands in a history."""

import pytest
import torch
from builders import interpreted  # noqa: F401
from builders.operation_examples.table import EXAMPLES

from penstock.kernels.reference.sampling.adjust import Histories, apply_mask, penalize_generated, penalize_repetition

OPERATIONS = {found.name: found for found in (apply_mask, penalize_repetition, penalize_generated)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_changes_what_the_reference_changes_bit_by_bit(name):
    found = OPERATIONS[name]
    for seed in range(3):
        for arguments, again in zip(EXAMPLES[name](seed), EXAMPLES[name](seed), strict=True):
            assert torch.equal(found.versions["triton"](*arguments), found.reference(*again)), (seed, arguments)


def histories_of(*tokens: list[int]) -> Histories:
    lengths = torch.tensor([len(of_row) for of_row in tokens])
    table = torch.zeros(len(tokens), int(lengths.max()) + 3, dtype=torch.int32)
    for line, of_row in zip(table, tokens, strict=True):
        line[: len(of_row)] = torch.tensor(of_row, dtype=torch.int32)
    places = torch.arange(len(tokens))
    return Histories(places, table, places, lengths, int(lengths.max()))


def test_a_token_that_came_two_thousand_times_is_penalized_once():
    histories = histories_of([7] * 2100, [7, 9])
    logits = torch.tensor([[2.0, -1.0] * 6] * 2)
    found = penalize_repetition.versions["triton"](logits.clone(), histories, torch.tensor([1.25, 0.5]))
    expected = logits.clone()
    expected[0, 7], expected[1, 7], expected[1, 9] = -1.25, -0.5, -0.5
    assert torch.equal(found, expected)


def test_a_token_is_counted_over_the_whole_answer_and_in_no_other_row():
    histories = histories_of([7] * 100 + [3] * 1200 + [7] * 900, [3] * 4)
    logits = torch.zeros(2, 12)
    starts, frequency, presence = torch.tensor([50, 4]), torch.tensor([0.5, 1.0]), torch.tensor([0.25, 1.0])
    found = penalize_generated.versions["triton"](logits, histories, starts, frequency, presence)
    expected = torch.zeros(2, 12)
    expected[0, 7], expected[0, 3] = -(950 * 0.5 + 0.25), -(1200 * 0.5 + 0.25)
    assert torch.equal(found, expected)


def test_more_rows_than_are_counted_at_once_find_their_memory_as_new():
    tokens = [[row % 5, 2, row % 3] for row in range(70)]
    starts, frequency = torch.zeros(70, dtype=torch.int64), torch.linspace(-1, 1, 70)
    logits = torch.randn(70, 9, generator=torch.Generator().manual_seed(1))
    arguments = histories_of(*tokens), starts, frequency, frequency + 1
    found = penalize_generated.versions["triton"](logits.clone(), *arguments)
    assert torch.equal(found, penalize_generated.reference(logits.clone(), *arguments))
