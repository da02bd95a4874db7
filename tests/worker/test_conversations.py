"""Conversations on models whose layers keep different things: each token is computed once, up to the rest of a block,
and the answers are those of an engine that finds nothing, bit for bit.
"""

import pytest
from builders.backends import load_on
from builders.cases import for_each
from builders.runner_harness import Answer, TinyEngine, engine_of, prompt
from builders.tiny_model import tiny_model

from penstock.protocol.messages import values

TURNS, BLOCK = 12, 16
MODELS = {
    "delta nets": ("qwen3_5_text", {}),
    "convolutions": ("lfm2", {}),
    "windows": ("mistral", {"sliding_window": 24}),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    family, given = MODELS[request.param]
    return load_on("native", tiny_model(tmp_path_factory.mktemp("model"), family, **given))


def conversation(engine: TinyEngine) -> tuple[list[Answer], list[int], int]:
    """The answers, the tokens computed for each turn, and how long it was in the end."""
    said, answers, computed = list(range(40, 75)), [], []
    for turn in range(TURNS):
        planned = len(engine.plans)
        asked = prompt(turn, said, seed=turn, temperature=0.8, max_tokens=5 + turn % 7, logprobs=2)
        answers += engine.run(asked)
        computed.append(sum(sum(values(plan.num_tokens)) for plan in engine.plans[planned:]))
        said = said + answers[-1].tokens + [(11 * turn + place) % 290 + 5 for place in range(3 + turn % 6)]
    return answers, computed, len(said)


@pytest.fixture(scope="module")
def uncached(model) -> list[Answer]:
    answers, computed, length = conversation(engine_of(model, shares_prefixes=False))
    assert sum(computed) > 4 * length  # it does compute everything again each turn
    return answers


@for_each("budget", [512, 37])
def test_many_turns_compute_each_token_once_up_to_a_blocks_rest(model, uncached, budget):
    answers, computed, length = conversation(engine_of(model, max_num_batched_tokens=budget))
    assert answers == uncached
    assert sum(computed) <= length + TURNS * BLOCK


@pytest.mark.long
@pytest.mark.parametrize("budget", [1, 16, 64])
def test_chunks_of_any_length_give_the_same_bits(model, uncached, budget):
    answers, _, _ = conversation(engine_of(model, max_num_batched_tokens=budget))
    assert answers == uncached


@for_each("shape", [{"num_states": 2}, {"num_states": 3}, {"num_blocks": 17, "num_states": 5}])
def test_little_room_costs_hits_and_never_a_bit(model, uncached, shape):
    answers, _, _ = conversation(engine_of(model, **shape))
    assert answers == uncached


def test_two_conversations_that_evict_one_another_come_back_from_cells(model):
    first, second = ([number] * 3 + list(range(5, 205)) for number in (7, 8))
    shape = {"num_blocks": 17, "num_states": 3, "num_cells": 40}

    def asked(number: int, tokens: list[int]):
        return prompt(number, tokens, max_tokens=6, logprobs=1)

    tight, roomy = engine_of(model, **shape), engine_of(model, shares_prefixes=False)
    for number, tokens in enumerate((first, second, first, second)):
        planned = len(tight.plans)
        assert tight.run(asked(number, tokens)) == roomy.run(asked(number, tokens))
        computed = sum(sum(values(plan.num_tokens)) for plan in tight.plans[planned:])
        assert number < 2 or computed <= 2 * BLOCK + 6, "an evicted prompt was computed again"
