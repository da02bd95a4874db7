"""Log-probabilities against their definition in float64."""

import numpy
import pytest
import torch
from builders.sampled_rows import logits_like

from penstock.worker.steps.logprobs import logprobs_of_prompt, logprobs_of_rows, token_logprobs

pytestmark = pytest.mark.usefixtures("sampling_form")

VOCABULARY = 5003


def expected(logits: torch.Tensor) -> numpy.ndarray:
    values = logits.double().numpy()
    shifted = values - values.max(-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("num_top", [0, 1, 20, VOCABULARY])
@pytest.mark.parametrize("ties", [False, True])
def test_the_chosen_token_comes_first_and_then_the_most_likely(num_top, ties):
    logits = logits_like(4, VOCABULARY, ties=ties)
    chosen = torch.tensor([0, 17, int(logits[2].argmax()), VOCABULARY - 1])
    found = token_logprobs(logits, chosen, num_top)
    wanted = expected(logits)
    for row in range(4):
        order = sorted(range(VOCABULARY), key=lambda token, row=row: (-logits[row, token].item(), token))
        assert found.token_ids[row].tolist() == [chosen[row].item(), *order[:num_top]]
        assert found.ranks[row] == order.index(chosen[row].item()) + 1
        numpy.testing.assert_allclose(found.logprobs[row], wanted[row, found.token_ids[row]], atol=2e-6)


def test_each_row_gets_a_part_with_what_its_owner_asked_for():
    logits, chosen = logits_like(3, 50), torch.tensor([1, 2, 3])
    owners, num_top = numpy.array([7, 2, 9]), numpy.array([4, 10, 4])
    parts = {part.owner: part for part in logprobs_of_rows(logits, chosen, owners, num_top)()}
    assert {owner: (part.is_prompt, part.width) for owner, part in parts.items()} == {
        7: (False, 5),
        2: (False, 11),
        9: (False, 5),
    }
    assert len(parts[7].token_ids) == len(parts[7].logprobs) == 20 and len(parts[7].ranks) == 4
    (alone,) = logprobs_of_rows(logits[2:], chosen[2:], owners[2:], num_top[2:])()
    assert parts[9] == alone


def test_pieces_of_a_prompt_join_to_the_whole():
    logits, chosen = logits_like(5, 300), torch.arange(5)
    pieces = [token_logprobs(logits[start:end], chosen[start:end], 3) for start, end in ((0, 2), (2, 3), (3, 5))]
    assert logprobs_of_prompt(0, pieces)() == logprobs_of_prompt(0, [token_logprobs(logits, chosen, 3)])()
