"""The engine's plans for several groups of layers, computed by a real worker: answers are right, whatever is scarce."""

from random import Random

import pytest
from builders.runner_harness import TinyEngine, prompt
from builders.state_runner import follower, prompt_of, state_runner

from penstock.protocol.messages import Prompt
from penstock.protocol.parameters.beams import BeamSearchParams

LENGTHS = [3, 17, 30, 9, 41, 24]


def asked(number: int, token_ids: list[int], **params) -> Prompt:
    return prompt(number, token_ids, **{"max_tokens": 12, **params})


def continued(token_ids: list[int], count: int) -> list[int]:
    """The tokens that must come."""
    known = list(token_ids)
    for _ in range(count):
        known.append(follower(known))
    return known[len(token_ids) :]


@pytest.mark.parametrize("budget", [7, 16, 200])
@pytest.mark.parametrize("every", [8, 2048])
def test_answers_are_right_in_company_in_chunks_and_after_hits(budget, every):
    engine = TinyEngine(state_runner(), max_num_batched_tokens=budget, checkpoint_every=every)
    for turn in range(3):  # the later ones find what the first has left
        prompts = [prompt_of(length) for length in (30, 9, 30, 17, 30)]
        answers = engine.run(*(asked(10 * turn + number, each) for number, each in enumerate(prompts)))
        assert [answer.tokens for answer in answers] == [continued(each, 12) for each in prompts]
    assert engine.scheduler.counters.cached_tokens > 0


def test_a_conversation_finds_its_states_and_its_window():
    engine, history = TinyEngine(state_runner(), max_num_batched_tokens=16), prompt_of(7)
    for turn in range(4):
        (answer,) = engine.run(asked(turn, history, max_tokens=6))
        assert answer.tokens == continued(history, 6)
        history = history + answer.tokens + [turn, 5]
    assert engine.scheduler.counters.cached_tokens == sum((7 + 8 * turn - 3) // 4 * 4 for turn in range(1, 4))


@pytest.mark.parametrize("seed", range(4))
def test_so_they_are_where_memory_is_scarce_and_swapped(seed):
    """Preempted by turns, and with states and blocks that come back from the second tier."""
    chance = Random(seed)
    runner = state_runner()
    engine = TinyEngine(runner, max_num_batched_tokens=24, checkpoint_every=8)
    for round_number in range(3):
        prompts = [prompt_of(chance.choice(LENGTHS)) for _ in range(9)]
        numbered = [asked(100 * round_number + number, each, n=2) for number, each in enumerate(prompts)]
        answers = engine.run(*numbered)
        expected = [continued(each, 12) for each in prompts for _ in range(2)]
        assert [answer.tokens for answer in answers] == expected
    stats = engine.scheduler.stats()
    assert stats.loaded_blocks > 0


def searched(budget: int, num_slots: int) -> list[list[int]]:
    engine = TinyEngine(state_runner(), max_num_batched_tokens=budget, max_num_seqs=num_slots)
    prompts = [asked(number, prompt_of(length), n=3, max_tokens=9) for number, length in enumerate((17, 30))]
    for each in prompts:
        each.beams = BeamSearchParams(beam_width=3, max_tokens=9)
    return [answer.tokens for answer in engine.run(*prompts)]


def test_beams_that_copy_states_find_what_beams_find_that_compute_them_anew():
    forked = searched(budget=200, num_slots=6)
    assert forked[0] == continued(prompt_of(17), 9), "the best of all follows the model"
    assert searched(budget=200, num_slots=1) == searched(budget=7, num_slots=2) == forked
