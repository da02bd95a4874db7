"""Log-probabilities on a GPU: the reference's, with its order among equal tokens."""

import math

import pytest
import torch
from builders import interpreted  # noqa: F401

from penstock.kernels.reference.sampling.logprobs import ranked_logprobs

# Infinities are meant; numpy, in which kernels are interpreted, warns of them.
pytestmark = [
    pytest.mark.long,  # test_versions.py and test_compiled.py look at every kernel in every run
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def agrees_with_the_reference(logits: torch.Tensor, chosen: torch.Tensor, num_top: int) -> None:
    found = ranked_logprobs.versions["triton"](logits, chosen, num_top)
    expected = ranked_logprobs.reference(logits, chosen, num_top)
    assert torch.equal(found.token_ids, expected.token_ids) and torch.equal(found.ranks, expected.ranks)
    torch.testing.assert_close(found.logprobs, expected.logprobs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_top", [0, 1, 5, 6, 20, 21])
def test_any_number_of_the_most_likely_is_told_even_where_the_best_stand_in_one_chunk(num_top):
    logits = torch.randn(2, 1300, generator=torch.Generator().manual_seed(num_top))
    logits[0, 700:730] += 10
    agrees_with_the_reference(logits, torch.tensor([1299, 0]), num_top)


def test_masked_tokens_come_last_in_the_order_of_their_ids():
    logits = torch.full((3, 600), -math.inf)
    logits[0, 550], logits[1, 3], logits[1, 599] = -2.0, 0.0, -0.0
    logits[2, ::2] = 1.0
    agrees_with_the_reference(logits, torch.tensor([7, 599, 5]), 5)
