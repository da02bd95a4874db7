"""Proposers by tokens alone: each guesses what its rule says, whatever the text, and forgets what has left."""

import itertools
import random
import sys
from collections.abc import Sequence

import numpy
from builders.cases import for_each
from builders.looks import PROMPT, array, entering, finished, guess
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.protocol.options.speculation import SpeculativeConfig
from penstock.worker.drafting.methods import drafter_of
from penstock.worker.drafting.ngram import Ngram
from penstock.worker.drafting.proposer import Look, Proposer
from penstock.worker.drafting.replay import Replay
from penstock.worker.drafting.suffix import Suffix

# Of few different tokens, so that they repeat; and how much of the text each look sees more than the one before.
texts = st.lists(st.integers(0, 3), max_size=60)
growths = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def num_calls(proposer: Proposer, tokens, most: int = 8) -> int:
    """Make one guess; return how many calls it takes."""
    look = Look(0, array(tokens), most)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    proposer.guess([look])
    sys.setprofile(None)
    return calls


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


@given(texts, growths, st.integers(0, 20), st.none() | texts)
def test_a_guess_is_no_longer_than_allowed_and_its_likelihoods_are_some(text, growths, most, expected):
    """Whatever an earlier run's answer was, too."""
    proposer = entered(Suffix() if expected is None else Replay(), expected=expected or ())
    for end in numpy.cumsum(growths).tolist():
        found = guess(proposer, PROMPT + text[:end], most)
        assert len(found.tokens) == len(found.likelihoods) <= most
        assert all(0 < likelihood <= 1 for likelihood in found.likelihoods)
        assert set(found.tokens) <= {*PROMPT, *text[:end], *(expected or ())}


def test_what_followed_the_longest_match_is_guessed():
    text = [1, 2, 3, 4, 5, 6, 9, 9, 3, 4, 50, 60, 9, 8, 4, 51, 61, 7, 2, 3, 4]
    assert guess(entered(Suffix()), text, most=2).tokens == [5, 6]


def test_a_guess_is_bounded_by_the_length_of_the_match():
    text = [*range(100), *range(50, 60)]
    assert guess(entered(Suffix(max_spec_factor=0.5)), text, most=15).tokens == [60, 61, 62, 63, 64]
    assert guess(entered(Suffix(max_tree_depth=12)), text, most=15).tokens == [60, 61]
    assert guess(entered(Suffix(max_tree_depth=5)), text, most=15).tokens == []


@for_each("config, most", [
    ({"method": "auto"}, 15), ({"method": "auto", "num_speculative_tokens": 31}, 15), ({"method": "suffix"}, 10),
    ({"method": "auto", "suffix_decoding_max_spec_factor": 0.5}, 5),
    ({"method": "suffix", "suffix_decoding_max_spec_factor": 1e300}, 15),
])  # fmt: skip
def test_drafts_are_bounded_by_the_match_where_all_are_checked_or_a_bound_is_given(config, most):
    text = [*range(100), *range(50, 60)]
    _, suffix = drafter_of(SpeculativeConfig(**config)).proposers
    assert guess(entered(suffix), text, most=15).tokens == list(range(60, 60 + most))


def test_a_repeated_stretch_is_guessed_to_go_on():
    assert guess(entered(Suffix()), [1, 2, 3, 1, 2, 3, 1], most=7).tokens == [2, 3, 1, 2, 3, 1, 2]
    assert guess(entered(Suffix()), [4, 4, 4], most=5).tokens == [4] * 5


def test_a_guess_ends_before_a_token_that_too_few_had_next():
    text = [1, 2, 3, 4, 5, 9, 1, 2, 3, 6, 7, 8, 1, 2]  # 3 came both times, and then either
    assert guess(entered(Suffix(min_token_prob=0.6)), text, most=3).tokens == [3]
    assert guess(entered(Suffix(min_token_prob=0.4)), text, most=3).tokens == [3, 6, 7]
    assert guess(entered(Suffix(min_token_prob=1.0)), [1, 2, 3, 4, 5, 1, 2], most=3).tokens == [3, 4, 5]


def test_a_long_text_is_read_over_several_looks_and_no_further_back_than_its_end():
    fresh = iter(range(100, 10**6))
    text = [1, 2, 3, 4, *itertools.islice(fresh, 20_000), 5, 6, 7, 8, *itertools.islice(fresh, 20_000)]
    proposer = Suffix()
    finished(proposer, [50, 51, 52, 53, 54], b"mine")
    proposer.enter(0, entering(text, store=b"mine"))
    assert guess(proposer, [*text, 5, 6, 7], most=1).tokens == []
    assert guess(proposer, [*text, 50, 51, 52], most=1).tokens == [53], "others' answers needn't wait for the text"
    for _ in range(20):
        guess(proposer, [*text, 5, 6, 7])
    assert guess(proposer, [*text, 5, 6, 7], most=1).tokens == [8]
    assert guess(proposer, [*text, 5, 6, 7, 1, 2, 3], most=1).tokens == []
    # As it grows, its beginning is forgotten.
    grown = [*text, *itertools.islice(fresh, 30_000), 5, 6, 7]
    for _ in range(40):
        assert guess(proposer, grown).tokens == []
    assert guess(proposer, [*grown, *grown[-9:-6]], most=1).tokens == [grown[-6]]


@for_each("share", [0.25, 0.5, 0.75, 1.0])
def test_likelihoods_are_about_as_often_right_as_they_say(share):
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
    assert abs(numpy.mean(said) - numpy.mean(right)) < 0.21, (numpy.mean(said), numpy.mean(right))


@for_each("text", [[1] * 100_000, [1, 2, 3] * 33_000, [1, 1, 2] * 33_000, list(range(100_000))])
def test_a_look_at_a_long_text_takes_a_bounded_number_of_calls_however_it_repeats_itself(text):
    proposer = entered(Suffix(), text)
    for _ in range(100):  # until it is read
        guess(proposer, text)
    assert num_calls(proposer, [*text, text[0]], most=15) < 500


# --- n-grams ----------------------------------------------------------------------------------------------------------


def looked_up(text: list[int], shortest: int, longest: int, most: int) -> list[int]:
    """The rule in its own words."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                return text[start + length : start + length + most]
    return []


LONG = list(range(2, 22))
# With a long stretch that repeats itself as a whole and ends the text.
stretches = st.lists(st.sampled_from([LONG, [0], [1]]), max_size=9).map(lambda parts: [*itertools.chain(*parts), *LONG])


@given(texts | stretches, st.integers(1, 4), st.sampled_from([0, 1, 4, 22]), st.integers(1, 9))
@example([*LONG, 0, *LONG, 1, *LONG], 1, 22, 9)  # the first one of two that are as long
@example([*LONG, 0, 1, *LONG, 1, *LONG], 1, 22, 9)  # the longest one
def test_the_first_occurrence_of_the_longest_ngram_is_looked_up(text, shortest, further, most):
    found = guess(Ngram(shortest, shortest + further), text, most)
    assert found.tokens == looked_up(text, shortest, shortest + further, most)
    assert found.likelihoods == [1.0] * len(found.tokens)


@for_each("text", [[7] * 100_000, [7, 8] * 50_000])
def test_a_long_text_is_looked_up_in_a_bounded_number_of_calls_however_it_repeats_itself(text):
    assert guess(Ngram(1, 1_024), text).tokens == (text * 2)[:8]
    assert num_calls(Ngram(1, 1_024), text) < 300


def test_no_ngram_is_looked_up_far_before_the_end():
    fresh = range(100, 40_100)
    assert guess(Ngram(1, 3), [*fresh, *fresh[10_000:10_003]], most=1).tokens == [fresh[10_003]]
    assert guess(Ngram(1, 3), [*fresh, *fresh[5_000:5_003]], most=1).tokens == []


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


@for_each("others", [[], [500], [500] * 60])
def test_an_answer_that_comes_back_after_it_differed_is_found_in_one_look(others):
    expected = random.Random(9).choices(range(10**6), k=20_000)
    proposer = entered(Replay(), expected=expected)
    assert guess(proposer, PROMPT + expected[:100] + others + expected[100:9_000]).tokens == expected[9_000:9_008]


@for_each("expected", [[7, 9], [8] * 9 + [7] * 8])
def test_a_look_takes_a_bounded_number_of_calls_however_many_tokens_are_new_and_differ(expected):
    proposer = entered(Replay(), expected=expected * (100_000 // len(expected)))
    assert num_calls(proposer, PROMPT + [7] * 50_000) < 200


def test_a_part_that_moved_is_found_further_away_the_longer_the_answer_differs():
    expected = random.Random(9).choices(range(10**6), k=20_000)
    proposer = entered(Replay(), expected=expected)
    moved = expected[3_000:]
    found = [guess(proposer, PROMPT + moved[:end]).tokens == moved[end : end + 8] for end in range(100)]
    assert found.index(True) < 60 and all(found[60:])


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


@for_each("proposer", [Suffix(), Replay()], ids=lambda proposer: proposer.name)
def test_a_slot_that_is_freed_leaves_nothing_behind(proposer):
    proposer.enter(0, entering(PROMPT, EXPECTED))
    guess(proposer, PROMPT + EXPECTED[:50])
    proposer.leave(0, array(PROMPT + EXPECTED[:50]))
    proposer.enter(0, entering(PROMPT))
    assert not guess(proposer, PROMPT + EXPECTED[:5]).tokens
