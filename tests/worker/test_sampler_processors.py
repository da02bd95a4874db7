"""Logits steps that a user brings: what they are given, and that a broken one stays its own request's matter."""

import numpy
import pytest
import torch
from builders import sampled_rows
from builders.cases import for_each
from builders.sampled_rows import HISTORY, logits_like, sample

from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.sampler import LogitsProcessors, ParameterTable, SamplingRows

pytestmark = pytest.mark.usefixtures("sampling_form")

VOCABULARY = 97
TOKENS = [5, 6, 7, 8]
GREEDY = SamplingParams(temperature=0)


def favour(vocab_size: int, token: int | None):
    """Adds to one token; requests that name none go without."""
    if token is None:
        return None
    if not 0 <= token < vocab_size:
        raise ValueError(f"{token} is no token")

    def step(tokens, num_prompt, logits) -> None:
        logits[token] += 1000

    return step


def always(step):
    """A processor that makes this step for every request."""
    return lambda vocab_size, given: step


def rows(processors: LogitsProcessors, params: list[SamplingParams]) -> SamplingRows:
    table = ParameterTable(len(params), VOCABULARY, sampled_rows.form.device, processors)
    stored = torch.zeros(len(params), HISTORY, dtype=torch.int32)
    for slot, each in enumerate(params):
        stored[slot, : len(TOKENS)] = torch.tensor(TOKENS)
        table.enter(slot, each, 3, 0, 0)
    count = len(params)
    columns = (numpy.arange(count), numpy.full(count, len(TOKENS)), numpy.full(count, 3))
    return SamplingRows(table, *columns, sampled_rows.form.given(stored))


def arguments(**given) -> SamplingParams:
    return SamplingParams(temperature=0, logits_processors_args=given)


def test_a_step_acts_on_the_requests_that_want_it_and_several_in_the_order_in_which_they_are_named():
    logits = logits_like(3, VOCABULARY)
    asked = rows(LogitsProcessors({"favour": favour}), [arguments(favour=11), GREEDY, arguments(favour=60)])
    assert sample(logits.clone(), asked).token_ids.tolist() == [11, int(logits[1].argmax()), 60]
    double = always(lambda tokens, num_prompt, logits: logits.__setitem__(slice(None), 2 * logits))
    found = logits[:1].clone()
    sample(found, rows(LogitsProcessors({"favour": favour, "double": double}), [arguments(favour=4)]))
    assert found[0, 4].item() == pytest.approx((logits[0, 4].item() + 1000) * 2)


def test_a_step_sees_prompt_answer_and_the_row_after_all_other_rules():
    seen = []

    def make(vocab_size, given):
        def step(tokens, num_prompt, logits) -> None:
            seen.append((vocab_size, given, tokens.tolist(), num_prompt, logits[9]))

        return step

    params = SamplingParams(temperature=0, logit_bias={9: 50}, logits_processors_args={"look": [1, {"a": None}]})
    logits = logits_like(1, VOCABULARY)
    sample(logits.clone(), rows(LogitsProcessors({"look": make}), [params]))
    assert seen == [(VOCABULARY, [1, {"a": None}], TOKENS, 3, logits[0, 9].item() + 50)]


@for_each(
    "make, given, words",
    [
        (favour, 1000, "The logits processor 'broken' failed: ValueError: 1000 is no token"),
        (always(lambda tokens, num_prompt, logits: logits.__setitem__(10**6, 0)), None, "'broken' failed: IndexError"),
        (always(lambda tokens, num_prompt, logits: logits + 1), None, "change"),
        (always(lambda tokens, num_prompt, logits: tokens.__setitem__(0, 1)), None, "read-only"),
    ],
)
def test_a_step_that_raises_fails_its_own_row_with_its_error(make, given, words):
    logits = logits_like(2, VOCABULARY)

    def only_where_asked(vocab_size, given):
        return None if given == "off" else make(vocab_size, given)

    asked = rows(LogitsProcessors({"broken": only_where_asked}), [arguments(broken="off"), arguments(broken=given)])
    found = sample(logits.clone(), asked)
    assert found.faults.tolist() == [0, 2] and found.token_ids[0] == logits[0].argmax()
    assert list(asked.errors) == [1] and words in asked.errors[1]
    ban = always(lambda tokens, num_prompt, logits: logits.fill(-numpy.inf))  # it leaves nothing to choose from
    assert sample(logits[:1].clone(), rows(LogitsProcessors({"ban": ban}), [GREEDY])).faults.tolist() == [2]
