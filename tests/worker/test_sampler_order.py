"""The most likely tokens come in one exact order, however they are found."""

import math

import pytest
import torch
from builders.sampled_rows import logits_like

from penstock.kernels.sampling import most_likely, scan

pytestmark = pytest.mark.usefixtures("sampling_form")

WIDTHS = (1, 7, 300, 4096, 5003, 50257)


def by_plain_sort(values: torch.Tensor, count: int) -> torch.Tensor:
    return torch.sort(values, dim=-1, descending=True, stable=True).indices[:, :count]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ties", [False, True])
def test_the_most_likely_are_those_of_a_stable_sort(width, ties):
    values = logits_like(3, width, ties=ties)
    values[1] = 0.0
    values[2, ::3] = -math.inf
    for count in {1, min(3, width), min(64, width), min(1024, width), width}:
        ordered, ids = most_likely(values, count)
        assert torch.equal(ids, by_plain_sort(values, count)), (width, count)
        assert torch.equal(ordered, values.gather(1, ids))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_best_is_the_lowest_id_among_the_largest(width):
    values = logits_like(4, width, ties=True)
    values[0] = -math.inf
    found = scan(values)
    assert torch.equal(found.best, by_plain_sort(values, 1)[:, 0])
    assert torch.equal(found.largest, values.amax(-1))


def test_zeros_of_both_signs_are_equal():
    values = torch.zeros(1, 5000)
    values[0, ::2] = -0.0
    assert most_likely(values, 4)[1].tolist() == [[0, 1, 2, 3]]
    assert scan(values).best.tolist() == [0]
