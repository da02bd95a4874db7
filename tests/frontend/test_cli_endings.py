"""How long an answer of the shell may be where nobody said it, and what is said of those that were cut."""

import pytest

from penstock.frontend.commands.generation.endings import Endings, with_usual_limit
from penstock.frontend.commands.generation.prompts import Row
from penstock.protocol.outputs import CompletionOutput, RequestOutput, Samples
from penstock.protocol.parameters.sampling import SamplingParams


@pytest.mark.parametrize(
    "params, reason, num_tokens, remark",
    [
        ({}, "length", 512, "the answer was cut at 512 tokens; --max-tokens allows more."),
        ({}, "length", 90, "the answer was cut: the context is full; a larger --max-model-len holds more."),
        ({}, "stop", 512, None),
        ({"min_tokens": 9}, "length", 512, "the answer was cut at 512 tokens; --max-tokens allows more."),
        ({"min_tokens": 900}, "length", 900, "the answer was cut at 900 tokens; --max-tokens allows more."),
        ({"min_length": 900}, "length", 900, "the answer was cut at 900 tokens; --max-tokens allows more."),
        ({"max_tokens": 90}, "length", 90, "the answer was cut at 90 tokens, the max_tokens that were given."),
        ({"max_tokens": 90}, "length", 80, "the answer was cut: the context is full; a larger --max-model-len"),
        ({"max_length": 900}, "length", 890, "the answer was cut at the max_length that was given."),
    ],
)
def test_a_cut_is_told_with_who_asked_for_it(params, reason, num_tokens, remark):
    endings = Endings()
    answer = CompletionOutput(token_ids=[1] * num_tokens, finish_reason=reason)
    row = with_usual_limit(Row("one", SamplingParams(**params)))
    endings.add(row, RequestOutput("0", None, [1], Samples([answer])))
    remarks = list(endings.remarks())
    assert remarks == [] if remark is None else remarks[0].startswith(remark)


def test_cuts_of_many_answers_are_told_together():
    endings = Endings()
    for most in (3, 7, None, None, None):
        row = with_usual_limit(Row("one", SamplingParams(max_tokens=most)))
        endings.add_answer(row, "length" if most else "stop", most or 5)
    assert list(endings.remarks()) == ["2 of 5 answers were cut at 3 to 7 tokens, the max_tokens that were given."]
