"""Proposers by tokens alone: each guesses what its rule says, whatever the text, and forgets what has left."""

import random
from collections.abc import Sequence

import numpy
import pytest
from builders.cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.protocol.messages import NewSlot, SamplingParams
from penstock.worker.drafting.ngram import Ngram
from penstock.worker.drafting.proposer import Guess, Look, Proposer
from penstock.worker.drafting.replay import Replay
from penstock.worker.drafting.suffix import Suffix

PROMPT = [7, 8, 9]

# Of few different tokens, so that they repeat; and how much of the text each look sees more than the one before.
texts = st.lists(st.integers(0, 3), max_size=60)
growths = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def array(tokens) -> numpy.ndarray:
    return numpy.array(tokens, numpy.int32)


def entering(prompt: Sequence[int], expected: Sequence[int] = (), store: bytes = b"") -> NewSlot:
    expects = array(expected).tobytes()
    params = SamplingParams()
    return NewSlot(0, array(prompt).tobytes(), len(prompt), 0, params, 7, 0, store=store, expected=expects)


def guess(proposer: Proposer, tokens, most: int = 8) -> Guess:
    [found] = proposer.guess([Look(0, array(tokens), most)])
    return found


def entered(proposer: Proposer, prompt: Sequence[int] = PROMPT, expected: Sequence[int] = ()) -> Proposer:
    proposer.enter(0, entering(prompt, expected))
    return proposer


# --- its own text -----------------------------------------------------------------------------------------------------


@given(texts, growths)
def test_a_text_that_is_read_bit_by_bit_gives_the_guesses_of_one_that_is_read_at_once(text, growths):
    proposer = entered(Suffix())
    for end in numpy.cumsum(growths).tolist():
        assert guess(proposer, text[:end]) == guess(entered(Suffix()), text[:end])


@given(texts, texts)
def test_a_history_that_is_another_one_is_read_anew(first, second):
    proposer = entered(Suffix())
    guess(proposer, first + [5] + first)
    proposer.leave(0, array(first))
    proposer.enter(0, entering(PROMPT))
    assert guess(proposer, second) == guess(entered(Suffix()), second)
    # Nor does it have to leave: its tokens may have been taken back.
    if len(second) < len(first):
        taken_back = entered(Suffix())
        guess(taken_back, first)
        assert guess(taken_back, second) == guess(entered(Suffix()), second)


@given(texts, st.integers(0, 20))
def test_a_guess_is_no_longer_than_allowed_and_its_likelihoods_are_some(text, most):
    found = guess(entered(Suffix()), text, most)
    assert len(found.tokens) == len(found.likelihoods) <= most
    assert all(0 < likelihood <= 1 for likelihood in found.likelihoods)
    assert set(found.tokens) <= set(text)


def test_what_followed_the_longest_match_is_guessed():
    text = [1, 2, 3, 4, 5, 6, 9, 9, 3, 4, 50, 60, 9, 8, 4, 51, 61, 7, 2, 3, 4]
    assert guess(entered(Suffix()), text, most=2).tokens == [5, 6]


def test_a_repeated_stretch_is_guessed_to_go_on():
    assert guess(entered(Suffix()), [1, 2, 3, 1, 2, 3, 1], most=7).tokens == [2, 3, 1, 2, 3, 1, 2]
    assert guess(entered(Suffix()), [4, 4, 4], most=5).tokens == [4] * 5


@for_each("share", [0.25, 0.5, 0.75, 1.0])
def test_likelihoods_are_as_often_right_as_they_say(share):
    """After 1, 2 comes 3 in so many of all cases; all other tokens are noise that never repeats."""
    source = random.Random(1)
    proposer, text, fresh = entered(Suffix()), [], iter(range(10, 10**6))
    said, right = [], []
    for _ in range(400):
        text += [next(fresh) for _ in range(3)] + [1, 2]
        found = guess(proposer, text, most=1)
        text.append(3 if source.random() < share else next(fresh))
        if found.tokens == [3]:
            said.append(found.likelihoods[0])
            right.append(text[-1] == 3)
    said, right = said[-200:], right[-200:]
    assert abs(numpy.mean(said) - numpy.mean(right)) < 0.12, (numpy.mean(said), numpy.mean(right))


class CountedReads(list):
    """A text that counts how often a token of it is read."""

    reads = 0

    def __getitem__(self, place):
        self.reads += 1
        return super().__getitem__(place)


@for_each("text", [[1] * 100_000, [1, 2, 3] * 33_000, [1, 1, 2] * 33_000], ids=["one token", "a period", "pairs"])
def test_a_look_at_a_long_text_that_repeats_itself_compares_a_bounded_number_of_tokens(text):
    proposer = entered(Suffix())
    guess(proposer, text)
    read = proposer._texts[0]
    read.tokens = CountedReads(read.tokens)
    guess(proposer, [*text, text[0]])
    assert read.tokens.reads < 2_000


# --- n-grams ----------------------------------------------------------------------------------------------------------


def looked_up(text: list[int], shortest: int, longest: int, most: int) -> list[int]:
    """The rule in its own words."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                return text[start + length : start + length + most]
    return []


@given(texts, st.integers(1, 4), st.integers(0, 4), st.integers(1, 9))
def test_the_first_occurrence_of_the_longest_ngram_is_looked_up(text, shortest, further, most):
    found = guess(Ngram(shortest, shortest + further), text, most)
    assert found.tokens == looked_up(text, shortest, shortest + further, most)
    assert found.likelihoods == [1.0] * len(found.tokens)


# --- an earlier run ---------------------------------------------------------------------------------------------------

EXPECTED = [source % 40 + 100 for source in random.Random(2).choices(range(1000), k=300)]


def test_an_answer_that_is_as_expected_is_guessed_to_its_end_and_no_further():
    proposer = entered(Replay(), expected=EXPECTED)
    for num_answered in (0, 1, 17, 250, 299, 300):
        found = guess(proposer, PROMPT + EXPECTED[:num_answered])
        assert found.tokens == EXPECTED[num_answered : num_answered + 8]
        assert all(likelihood > 0.85 for likelihood in found.likelihoods)


def test_a_sequence_that_comes_back_into_a_slot_with_half_of_its_answer_goes_on_from_there():
    proposer = Replay()
    answered = array(PROMPT + EXPECTED[:99]).tobytes()
    proposer.enter(0, replace(entering(PROMPT, EXPECTED), token_ids=answered))
    assert guess(proposer, PROMPT + EXPECTED[:99]).tokens == EXPECTED[99:107]


@for_each("change", ["replaced", "inserted", "left out"])
@for_each("count", [1, 2, 5, 12, 30])
def test_an_answer_that_differs_for_a_while_is_guessed_again_soon_after(change, count):
    proposer = entered(Replay(), expected=EXPECTED)
    guess(proposer, PROMPT + EXPECTED[:100])
    others = [random.Random(count).randrange(500, 600) for _ in range(0 if change == "left out" else count)]
    rest = EXPECTED[100 if change == "inserted" else 100 + count :]
    answer = EXPECTED[:100] + others
    misses = 0
    # Token by token, as after every guess that is wrong.
    while guess(proposer, PROMPT + answer + rest[:misses]).tokens != rest[misses : misses + 8]:
        misses += 1
    assert misses <= 3, f"{count} tokens {change}"


def test_an_answer_that_has_nothing_to_do_with_what_was_expected_lowers_the_likelihoods():
    proposer = entered(Replay(), expected=EXPECTED)
    answer: list[int] = []
    for _ in range(100):
        found = guess(proposer, PROMPT + answer)
        answer.append(900)
    assert all(likelihood < 0.5 for likelihood in found.likelihoods[:1])


@given(texts, texts, growths)
def test_whatever_was_expected_and_whatever_comes_a_replay_guesses_within_bounds(expected, answer, growths):
    proposer = entered(Replay(), expected=expected)
    for end in numpy.cumsum(growths).tolist():
        found = guess(proposer, PROMPT + answer[:end], most=4)
        assert len(found.tokens) == len(found.likelihoods) <= 4
        assert all(0 < likelihood <= 1 for likelihood in found.likelihoods)


@pytest.mark.parametrize("proposer", [Suffix(), Replay()], ids=lambda proposer: proposer.name)
def test_a_slot_that_is_freed_leaves_nothing_behind(proposer):
    proposer.enter(0, entering(PROMPT, EXPECTED))
    guess(proposer, PROMPT + EXPECTED[:50])
    proposer.leave(0, array(PROMPT + EXPECTED[:50]))
    assert not any(vars(proposer).values())
    proposer.enter(0, entering(PROMPT))
    assert not guess(proposer, PROMPT).tokens
