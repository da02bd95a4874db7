"""Every sampling parameter over random logits: the token is the one that the rule, written out in numpy, chooses."""

import numpy
import pytest
import torch
from builders.sampled_rows import logits_like, sampled_rows
from builders.sampling_rules import CASES, next_token

from penstock.kernels.reference.sampling.uniform import uniform
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.sampler import sample

pytestmark = pytest.mark.usefixtures("sampling_form")

VOCABULARY = 307
ROWS = 40


def histories(seed: int) -> list[list[int]]:
    """Of few different tokens, so that they repeat."""
    draws = numpy.random.default_rng(seed)
    return [draws.choice([31, 95, 159, 251, 7, 100, 4], draws.integers(1, 30)).tolist() for _ in range(ROWS)]


@pytest.mark.parametrize("name", CASES)
def test_the_token_is_the_one_that_the_rule_chooses(name):
    params = SamplingParams(**CASES[name])
    tokens = histories(len(name))
    num_prompt = [1 + len(history) // 3 for history in tokens]
    logits = logits_like(ROWS, VOCABULARY, seed=len(name))
    rows = sampled_rows(
        VOCABULARY, [params] * ROWS, histories=tokens, num_prompt=num_prompt, seeds=range(ROWS), samples=[1] * ROWS
    )
    found = sample(logits.clone(), rows)
    assert not found.faults.any()
    lengths = torch.tensor([len(history) for history in tokens])
    drawn = uniform(torch.arange(ROWS), torch.ones(ROWS, dtype=torch.int64), lengths).tolist()
    expected = [
        next_token(logits[row].numpy(), tokens[row], num_prompt[row], params, drawn[row]) for row in range(ROWS)
    ]
    assert found.token_ids.tolist() == expected


def test_a_row_in_mixed_company_is_adjusted_as_alone():
    kinds = [SamplingParams(**options) for options in CASES.values()]
    tokens = (histories(1) * 2)[: len(kinds)]
    num_prompt = [1 + len(history) // 3 for history in tokens]
    logits = logits_like(len(kinds), VOCABULARY, seed=3)
    together = sample(logits.clone(), sampled_rows(VOCABULARY, kinds, histories=tokens, num_prompt=num_prompt))
    for row, params in enumerate(kinds):
        own = sampled_rows(VOCABULARY, [params], histories=[tokens[row]], num_prompt=[num_prompt[row]], seeds=[row])
        assert sample(logits[row : row + 1].clone(), own).token_ids[0] == together.token_ids[row], params
