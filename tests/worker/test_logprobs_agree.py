"""A prompt's log-probabilities are those of the same text when it was generated, whatever computes it."""

import numpy
import pytest
from builders.backends import BACKENDS, INVARIANT_BACKENDS, load_on
from builders.runner_harness import Answer, TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.worker.models.load import Model

PROMPT = [(11 * place) % 290 + 5 for place in range(21)]
SAMPLED = {"temperature": 1.3, "top_k": 40, "repetition_penalty": 1.2, "logit_bias": {7: 3.0}}
TOP = 4


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(backend, tmp_path_factory) -> Model:
    return load_on(backend, tiny_model(tmp_path_factory.mktemp("model"), "qwen3", dtype="bfloat16"))


def answer(model: Model, token_ids: list[int], *, budget: int = 512, **params) -> Answer:
    [found] = TinyEngine(slotted_runner(model), max_num_batched_tokens=budget).run(prompt(1, token_ids, **params))
    return found


def unpacked(positions: list[tuple[bytes, bytes, bytes]]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Token ids and log-probabilities, a row a position."""
    ids, logprobs = ([entry[place] for entry in positions] for place in (0, 1))
    return (
        numpy.frombuffer(b"".join(ids), numpy.int32).reshape(len(positions), -1),
        numpy.frombuffer(b"".join(logprobs), numpy.float32).reshape(len(positions), -1),
    )


@pytest.mark.parametrize("budget", [512, 16], ids=["in one step", "in chunks"])
@pytest.mark.parametrize("top", [0, TOP, -1])
def test_they_are_those_of_the_text_when_it_was_generated(model, backend, budget, top):
    generated = answer(model, PROMPT, max_tokens=24, seed=3, logprobs=top, **SAMPLED)
    text = PROMPT + generated.tokens
    read = answer(model, text, budget=budget, max_tokens=1, prompt_logprobs=top).prompt_logprobs
    assert len(read) == len(text) - 1
    again = read[len(PROMPT) - 1 :]
    if backend in INVARIANT_BACKENDS:
        assert again == generated.logprobs
    else:  # whole chunks and lone rows are summed in different orders
        (expected_ids, expected), (ids, logprobs) = unpacked(generated.logprobs), unpacked(again)
        numpy.testing.assert_array_equal(ids[:, 0], expected_ids[:, 0])
        numpy.testing.assert_allclose(numpy.sort(logprobs[:, 1:]), numpy.sort(expected[:, 1:]), atol=2e-2)
        numpy.testing.assert_allclose(logprobs[:, 0], expected[:, 0], atol=2e-2)
