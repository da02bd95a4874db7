"""Log-probabilities of whole vocabularies are counted before anything is computed."""

import pytest
from builders.bundled_model import VOCABULARY
from builders.cases import for_each
from builders.door import door_of_pocket

from penstock import SamplingParams
from penstock.frontend.requests.door import Door
from penstock.frontend.requests.pending_request import PendingRequest

PROMPT = list(range(10, 50))


@pytest.fixture(scope="module")
def door() -> Door:
    return door_of_pocket(limit_logprobs=VOCABULARY * 100)


def asked(door: Door, **params) -> PendingRequest:
    [pending] = door.admit(list(door.parse([PROMPT], SamplingParams(**params))), notify=lambda request: None)
    return pending


@for_each(
    "params",
    [
        {"logprobs": -1, "max_tokens": 100},
        {"logprobs": -1, "max_tokens": 60, "prompt_logprobs": -1},
        {"logprobs": -1, "max_tokens": 20, "n": 5},
        {"logprobs": 20, "prompt_logprobs": 20, "n": 128},
    ],
)
def test_up_to_the_limit_they_are_given(door, params):
    assert not asked(door, **params).is_finished


@for_each(
    "params",
    [
        {"logprobs": -1},
        {"logprobs": -1, "max_tokens": 101},
        {"logprobs": -1, "max_tokens": 61, "prompt_logprobs": -1},
        {"logprobs": -1, "max_tokens": 21, "n": 5},
    ],
)
def test_beyond_it_the_request_is_refused_with_both_figures(door, params):
    output = asked(door, **params).output
    assert output.error_code == 400 and output.finished
    assert f"limit is {VOCABULARY * 100:,} (option limit_logprobs)" in output.error_msg


@for_each("name", ["logprobs", "prompt_logprobs"])
def test_a_model_can_be_started_that_gives_none(name):
    output = asked(door_of_pocket(enable_logprob=False), **{name: 0}).output
    assert output.error_code == 400 and f"{name}=0: " in output.error_msg and "enable_logprob=False" in output.error_msg
    assert not asked(door_of_pocket(enable_logprob=False)).is_finished
