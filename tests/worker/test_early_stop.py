"""An answer without doubt ends at the same token whatever the company, the room and the steps in flight."""

import pytest
from builders.backends import load_on
from builders.runner_harness import Answer, TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.protocol.messages import Prompt

EARLY_STOP = {"window_size": 4, "threshold": 0.05}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_on("native", tiny_model(tmp_path_factory.mktemp("model"), "qwen3"))


def requests(**options) -> list[Prompt]:
    settled = {"temperature": 0.5, "max_tokens": 60, "early_stop": EARLY_STOP, **options}
    return [prompt(number, [9 + number, 41, 42 + number], seed=number, **settled) for number in range(12)]


@pytest.fixture(scope="module")
def alone(model) -> list[Answer]:
    return [TinyEngine(slotted_runner(model)).run(asked)[0] for asked in requests()]


def test_answers_end_at_different_lengths(alone):
    assert len({len(answer.tokens) for answer in alone if answer.finish_reason == "stop"}) > 3


@pytest.mark.parametrize("shape", [{}, {"num_blocks": 14}, {"num_slots": 3}], ids=str)
def test_in_company_as_alone(model, alone, shape):
    engine = TinyEngine(slotted_runner(model, **shape))
    assert engine.run(*requests()) == alone
    assert (engine.scheduler.stats().preemptions > 0) == ("num_blocks" in shape)


def test_one_that_is_switched_off_or_that_nobody_asked_for_ends_nothing(model):
    for early_stop in (None, {**EARLY_STOP, "enable_early_stop": False}):
        answers = TinyEngine(slotted_runner(model)).run(*requests(early_stop=early_stop))
        assert {answer.finish_reason for answer in answers} == {"length"}
