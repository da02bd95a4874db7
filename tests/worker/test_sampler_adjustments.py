"""Each rule that changes logits, against its own statement in a few lines."""

import math

import numpy
import pytest
import torch
from builders.sampled_rows import logits_like, sampled_rows

from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.sampler import Mask
from penstock.worker.sampler.adjustments import adjust, allow

pytestmark = pytest.mark.usefixtures("sampling_form")

VOCABULARY = 97
HISTORY = [5, 6, 7, 5, 90, 6, 5]  # the first three are prompt


def adjusted(logits: torch.Tensor, params: SamplingParams, history=HISTORY, num_prompt=3) -> torch.Tensor:
    """Row 1 of three, between rows that want nothing; these must stay as they are."""
    plain = SamplingParams()
    rows = sampled_rows(
        VOCABULARY, [plain, params, plain], histories=[[1], history, [2, 3]], num_prompt=[1, num_prompt, 1]
    )
    stack = torch.stack([logits, logits, logits])
    adjust(stack, rows)
    assert torch.equal(stack[0], logits) and torch.equal(stack[2], logits)
    return stack[1]


@pytest.fixture
def logits() -> torch.Tensor:
    return logits_like(1, VOCABULARY)[0]


def test_a_bias_is_added(logits):
    expected = logits.clone()
    expected[3] += 7.5
    expected[96] -= 100
    assert torch.equal(adjusted(logits, SamplingParams(logit_bias={3: 7.5, 96: -100})), expected)


def test_a_bias_for_a_token_beyond_the_model_is_nothing(logits):
    assert torch.equal(adjusted(logits, SamplingParams(logit_bias={97: 50})), logits)


def test_a_bad_word_of_one_token_never_comes(logits):
    found = adjusted(logits, SamplingParams(bad_words_ids=[[4], [60]], logit_bias={4: 100}))
    assert torch.isneginf(found).nonzero().flatten().tolist() == [4, 60]


@pytest.mark.parametrize(
    ("words", "banned"),
    [
        ([[5, 11]], [11]),  # the history ends with 5
        ([[6, 5, 12], [90, 6, 5, 13], [6, 6, 14]], [12, 13]),
        ([[5, 11], [5, 11], [5, 15]], [11, 15]),
        ([[7, 16]], []),  # 7 stands in the history, not at its end
        ([[9] * 30 + [17]], []),  # longer than the history
        ([[*HISTORY, 18]], [18]),  # the whole of it, prompt and all
        ([[5, 200]], []),  # no token of this model
    ],
)
def test_a_bad_sequence_is_not_completed(logits, words, banned):
    found = adjusted(logits, SamplingParams(bad_words_ids=words))
    expected = logits.clone()
    expected[banned] = -math.inf
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("limits", "is_early"),
    [
        ({"min_tokens": 5}, True),  # four were generated
        ({"min_tokens": 4}, False),
        ({"min_length": 8}, True),  # seven stand there
        ({"min_length": 7}, False),
        ({"min_length": 3, "min_tokens": 5}, True),
    ],
)
def test_no_end_comes_before_the_least_length(logits, limits, is_early):
    params = SamplingParams(eos_token_id=[2, 3000], stop_token_ids=[9], **limits)
    expected = logits.clone()
    if is_early:
        expected[[2, 9]] = -math.inf
    assert torch.equal(adjusted(logits, params), expected)


@pytest.mark.parametrize("penalty", [1.3, 0.5])
def test_repetition_counts_prompt_and_answer_once(logits, penalty):
    expected = logits.numpy().copy()
    for token in set(HISTORY):
        value = expected[token]
        expected[token] = value / numpy.float32(penalty) if value > 0 else value * numpy.float32(penalty)
    found = adjusted(logits, SamplingParams(repetition_penalty=penalty))
    numpy.testing.assert_array_equal(found.numpy(), expected)


def test_presence_and_frequency_count_the_answer(logits):
    expected = logits.double()
    for token in HISTORY[3:]:
        expected[token] -= 0.75
    for token in set(HISTORY[3:]):
        expected[token] -= 0.5
    found = adjusted(logits, SamplingParams(frequency_penalty=0.75, presence_penalty=0.5))
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=0)


def test_before_the_first_token_of_the_answer_nothing_is_penalized(logits):
    params = SamplingParams(frequency_penalty=2, presence_penalty=2)
    assert torch.equal(adjusted(logits, params, history=HISTORY, num_prompt=len(HISTORY)), logits)


def test_many_rows_are_adjusted_as_each_alone():
    kinds = [
        SamplingParams(repetition_penalty=1.2, frequency_penalty=0.3, bad_words_ids=[[5, 1], [2]]),
        SamplingParams(),
        SamplingParams(repetition_penalty=0.8, min_tokens=40, eos_token_id=[1]),
        SamplingParams(presence_penalty=-1, logit_bias={8: 3}, bad_words_ids=[[6, 5, 44]]),
    ]
    histories = [HISTORY, [3], HISTORY * 5, HISTORY * 2]
    logits = logits_like(4, VOCABULARY)
    together = logits.clone()
    adjust(together, sampled_rows(VOCABULARY, kinds, histories=histories, num_prompt=[3, 1, 3, 3]))
    for row, params in enumerate(kinds):
        alone = logits[row : row + 1].clone()
        num_prompt = [1] if row == 1 else [3]
        adjust(alone, sampled_rows(VOCABULARY, [params], histories=[histories[row]], num_prompt=num_prompt))
        assert torch.equal(alone[0], together[row]), params


def test_a_mask_leaves_the_tokens_whose_bit_is_set():
    logits = logits_like(3, VOCABULARY)
    allowed = {0, 31, 32, 40, 96}
    words = [sum(1 << token % 32 for token in allowed if token // 32 == word) for word in range(4)]
    bits = numpy.array([words], numpy.uint32).view(numpy.int32)
    expected = logits.clone()
    expected[1, [token for token in range(VOCABULARY) if token not in allowed]] = -math.inf
    allow(logits, Mask(numpy.array([1]), bits))
    assert torch.equal(logits, expected)
