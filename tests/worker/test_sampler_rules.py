"""Sampling parameters against their statement in a few lines of numpy: each rule that changes logits, the order of
tokens that are equally likely, and the token that all rules together choose.
"""

import math

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.sampled_rows import adjust, allow, logits_like, most_likely, sample, sampled_rows, scan
from builders.sampling_rules import CASES, next_token

from penstock.kernels.reference.sampling.uniform import uniform
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.sampler import Mask

pytestmark = pytest.mark.usefixtures("sampling_form")

VOCABULARY = 97
HISTORY = [5, 6, 7, 5, 90, 6, 5]  # the first three are prompt


def adjusted(logits: torch.Tensor, params: SamplingParams, num_prompt: int = 3) -> torch.Tensor:
    """Row 1 of three, between rows that want nothing; these must stay as they are."""
    plain = SamplingParams()
    rows = sampled_rows(
        VOCABULARY, [plain, params, plain], histories=[[1], HISTORY, [2, 3]], num_prompt=[1, num_prompt, 1]
    )
    stack = torch.stack([logits, logits, logits])
    adjust(stack, rows)
    assert torch.equal(stack[0], logits) and torch.equal(stack[2], logits)
    return stack[1]


ENDS = {"eos_token_id": [2, 3000], "stop_token_ids": [9]}
NEVER, EARLY = -math.inf, {2: -math.inf, 9: -math.inf}
# Parameters, and what they add to which token's logit.
ADDED: dict[str, tuple[dict, dict[int, float]]] = {
    "a bias": ({"logit_bias": {3: 7.5, 96: -100}}, {3: 7.5, 96: -100}),
    "a bias for a token beyond the model": ({"logit_bias": {97: 50}}, {}),
    "bad words of one token": ({"bad_words_ids": [[4], [60]], "logit_bias": {4: 100}}, {4: NEVER, 60: NEVER}),
    "the history ends as a bad sequence begins": ({"bad_words_ids": [[5, 11]]}, {11: NEVER}),
    "several do": ({"bad_words_ids": [[6, 5, 12], [90, 6, 5, 13], [6, 6, 14]]}, {12: NEVER, 13: NEVER}),
    "one twice": ({"bad_words_ids": [[5, 11], [5, 11], [5, 15]]}, {11: NEVER, 15: NEVER}),
    "it stands in the history, not at its end": ({"bad_words_ids": [[7, 16]]}, {}),
    "it is longer than the history": ({"bad_words_ids": [[9] * 30 + [17]]}, {}),
    "it is the whole history, prompt and all": ({"bad_words_ids": [[*HISTORY, 18]]}, {18: NEVER}),
    "it ends with no token of this model": ({"bad_words_ids": [[5, 200]]}, {}),
    "fewer than min_tokens were generated": ({"min_tokens": 5, **ENDS}, EARLY),
    "as many as min_tokens were": ({"min_tokens": 4, **ENDS}, {}),
    "all are fewer than min_length": ({"min_length": 8, **ENDS}, EARLY),
    "all are as many": ({"min_length": 7, **ENDS}, {}),
    "one of both limits holds": ({"min_length": 3, "min_tokens": 5, **ENDS}, EARLY),
    "penalties count the answer": (
        {"frequency_penalty": 0.75, "presence_penalty": 0.5},
        {5: -2 * 0.75 - 0.5, 90: -0.75 - 0.5, 6: -0.75 - 0.5},
    ),
}


@for_each("options, added", ADDED.values(), ids=ADDED)
def test_a_rule_adds_to_the_logits_of_its_row_alone(options, added):
    logits = logits_like(1, VOCABULARY)[0]
    expected = logits.clone()
    for token, amount in added.items():
        expected[token] += amount
    torch.testing.assert_close(adjusted(logits, SamplingParams(**options)), expected, atol=1e-6, rtol=0)


def test_before_the_first_token_of_the_answer_nothing_is_penalized():
    logits, params = logits_like(1, VOCABULARY)[0], SamplingParams(frequency_penalty=2, presence_penalty=2)
    assert torch.equal(adjusted(logits, params, num_prompt=len(HISTORY)), logits)


def test_a_mask_leaves_the_tokens_whose_bit_is_set():
    logits = logits_like(3, VOCABULARY)
    allowed = {0, 31, 32, 40, 96}
    words = [sum(1 << token % 32 for token in allowed if token // 32 == word) for word in range(4)]
    bits = numpy.array([words], numpy.uint32).view(numpy.int32)
    expected = logits.clone()
    expected[1, [token for token in range(VOCABULARY) if token not in allowed]] = -math.inf
    allow(logits, sampled_rows(VOCABULARY, [SamplingParams()] * 3), Mask(numpy.array([1]), bits))
    assert torch.equal(logits, expected)


# --- all rules together -----------------------------------------------------------------------------------------------

ROWS, WIDE = 24, 307


def histories(seed: int) -> list[list[int]]:
    """Of few different tokens, so that they repeat."""
    draws = numpy.random.default_rng(seed)
    return [draws.choice([31, 95, 159, 251, 7, 100, 4], draws.integers(1, 30)).tolist() for _ in range(ROWS)]


@for_each("name", CASES)
@for_each("ties", [False, True])
def test_the_token_is_the_one_that_the_rule_chooses(name, ties):
    params = SamplingParams(**CASES[name])
    tokens = histories(len(name))
    num_prompt = [1 + len(history) // 3 for history in tokens]
    logits = logits_like(ROWS, WIDE, seed=len(name), ties=ties)
    rows = sampled_rows(
        WIDE, [params] * ROWS, histories=tokens, num_prompt=num_prompt, seeds=range(ROWS), samples=[1] * ROWS
    )
    found = sample(logits.clone(), rows)
    assert not found.faults.any()
    lengths = torch.tensor([len(history) for history in tokens])
    drawn = uniform(torch.arange(ROWS), torch.ones(ROWS, dtype=torch.int64), lengths).tolist()
    expected = [
        next_token(logits[row].numpy(), tokens[row], num_prompt[row], params, drawn[row]) for row in range(ROWS)
    ]
    assert found.token_ids.tolist() == expected


@for_each("width, threads", [(WIDE, 1), (30_001, 2)])
def test_a_row_in_mixed_company_is_adjusted_and_drawn_as_alone(width, threads):
    kinds = [SamplingParams(**options) for options in CASES.values()]
    tokens = histories(1)[: len(kinds)]
    num_prompt = [1 + len(history) // 3 for history in tokens]
    logits = logits_like(len(kinds), width, seed=3)
    company, before = sampled_rows(width, kinds, histories=tokens, num_prompt=num_prompt), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        together, chosen = logits.clone(), sample(logits.clone(), company)
        adjust(together, company)
    finally:
        torch.set_num_threads(before)
    for row, params in enumerate(kinds):
        own = sampled_rows(width, [params], histories=[tokens[row]], num_prompt=[num_prompt[row]], seeds=[row])
        alone = logits[row : row + 1].clone()
        assert sample(alone.clone(), own).token_ids[0] == chosen.token_ids[row], params
        adjust(alone, own)
        assert torch.equal(alone[0], together[row]), params


# --- the most likely tokens come in one exact order, however they are found -------------------------------------------

WIDTHS = (1, 7, 300, 4096, 5003, 50257)


@for_each("width", WIDTHS)
@for_each("ties", [False, True])
def test_the_most_likely_are_those_of_a_stable_sort(width, ties):
    values = logits_like(4, width, ties=ties)
    values[0], values[1] = -math.inf, 0.0
    values[2, ::3] = -math.inf
    right = torch.sort(values, dim=-1, descending=True, stable=True).indices
    for count in {1, min(3, width), min(64, width), min(1024, width), width}:
        ordered, ids = most_likely(values[1:], count)
        assert torch.equal(ids, right[1:, :count]), (width, count)
        assert torch.equal(ordered, values[1:].gather(1, ids))
    largest, best, _, _ = scan(values)
    assert torch.equal(best, right[:, 0])
    assert torch.equal(largest, values.amax(-1))
    zeros = torch.zeros(1, width)
    zeros[0, ::2] = -0.0  # those of both signs are equal
    assert most_likely(zeros, min(4, width))[1].tolist() == [list(range(min(4, width)))]
    assert scan(zeros)[1].tolist() == [0]
