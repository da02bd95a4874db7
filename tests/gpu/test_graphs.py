"""Captured steps answer as those that are launched kernel by kernel, of any number of rows and any context."""

from typing import Any

import pytest
from builders.on_card import generated, last_log, mixed_prompts, pocket, sized, told

from penstock import LLM, SamplingParams

# Between sizes that are captured, and on them.
NUMBERS = sized((1, 3, 4, 5, 9, 17, 31, 32), (1, 3))
# The ways of choosing a token; penalties keep a step's choice from being captured while the row is there.
CHOICES = [
    {"temperature": 0, "max_tokens": 20},
    {"temperature": 1, "top_p": 0.9, "max_tokens": 40},
    {"temperature": 1.5, "top_k": 30, "max_tokens": 30},
    {"temperature": 1, "guided_regex": "[a-z ]{30,60}", "max_tokens": 35},
    {"temperature": 1, "repetition_penalty": 1.2, "max_tokens": 5},
]
LONG = {"max_model_len": 2048, "kv_cache_memory": "512MiB"}
PARAMS = SamplingParams(temperature=0, max_tokens=sized(12, 2), logprobs=1, ignore_eos=True)


def answers(llm: LLM) -> dict[int, list[tuple]]:
    return {number: [told(output) for output in generated(llm, mixed_prompts(number), PARAMS)] for number in NUMBERS}


def over_the_bound(llm: LLM) -> list[tuple]:
    """Two contexts that grow beyond 1,024 tokens, where another graph takes over, and one that does not."""
    lengths = sized((1010, 40, 1020), (20, 10))
    prompts = [[(11 * place + length) % 1400 + 10 for place in range(length)] for length in lengths]
    params = SamplingParams(temperature=0, max_tokens=sized(40, 2), logprobs=1, ignore_eos=True)
    return [told(output) for output in generated(llm, prompts, params)]


def by_every_choice(llm: LLM) -> list[tuple]:
    choices = [CHOICES[number % len(CHOICES)] for number in range(sized(11, 2))]
    params = [SamplingParams(**each, seed=number, ignore_eos=True) for number, each in enumerate(choices)]
    return [told(output) for output in generated(llm, mixed_prompts(len(params)), params)]


@pytest.fixture(scope="module", params=["bf16", "int8"])
def options(request, device) -> dict[str, Any]:
    return {"device": device, "dtype": "bfloat16", "deterministic": True, "kv_cache_dtype": request.param, **LONG}


@pytest.fixture(scope="module")
def eager(options) -> tuple[dict[int, list[tuple]], list[tuple], list[tuple]]:
    with pocket(**options, enforce_eager=True) as llm:
        found = answers(llm), over_the_bound(llm), by_every_choice(llm)
        assert "captured" not in last_log()
        return found


def test_after_a_warm_up_nothing_is_captured_while_requests_are_served(card, options, eager):
    with pocket(**options, use_warmup=True) as llm:
        before = last_log().count("captured a step of")
        assert answers(llm) == eager[0]
        assert over_the_bound(llm) == eager[1]
        assert last_log().count("captured a step of") == before > 0
        assert "captured steps in" in last_log() and "tokens of prompts" in last_log()


@pytest.mark.parametrize("sizes", [None, [2, 8, 20]], ids=["own sizes", "given sizes"])
def test_captured_steps_answer_as_launched_ones(options, eager, sizes):
    with pocket(**options, graph_batch_sizes=sizes) as llm:
        assert answers(llm) == eager[0]
        assert over_the_bound(llm) == eager[1]
        assert by_every_choice(llm) == eager[2]
        # Once more, when nothing is left to capture.
        assert answers(llm) == eager[0]
        if options["device"] == "cuda":
            assert "captured a step of" in last_log()
            assert "captured the choice of" in last_log()
