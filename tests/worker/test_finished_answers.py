"""Drafts from answers that others have finished: of the same key alone, and in a bounded memory."""

import random

from builders.cases import for_each
from builders.looks import PROMPT, array, entering, finished
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.worker.drafting.proposer import Look
from penstock.worker.drafting.suffix import Suffix

# Of few different tokens, so that they repeat.
texts = st.lists(st.integers(0, 3), max_size=60)
MINE, YOURS = b"mine", b"yours"
ANSWER = list(range(200, 240))


def drafted(proposer: Suffix, tokens: list[int], store: bytes) -> list[int]:
    proposer.enter(1, entering(tokens, store=store))
    [found] = proposer.guess([Look(1, array(tokens), 8)])
    return found.tokens


def test_an_answer_is_drafted_from_one_with_the_same_key_that_has_finished():
    proposer = Suffix()
    finished(proposer, ANSWER, MINE)
    assert drafted(proposer, [1, 2, *ANSWER[4:9]], MINE) == ANSWER[9:17]
    # Its beginning follows the end of the prompt.
    assert drafted(proposer, [4, 5, 6, *PROMPT], MINE) == ANSWER[:8]


@given(st.lists(st.tuples(st.sampled_from([MINE, YOURS, b"", b"third"]), texts), max_size=30), texts)
def test_only_tokens_that_followed_in_answers_of_the_same_key_are_drafted(answers, end):
    """Each key's tokens are its own, and some that all have."""
    proposer = Suffix(most_bytes=100_000)
    own = {key: offset for offset, key in ((100, MINE), (200, YOURS), (300, b""), (400, b"third"))}
    for key, answer in answers:
        finished(proposer, [own[key] if token == 3 else token for token in answer], key)
    for key in (MINE, YOURS, b""):
        drafts = drafted(proposer, end, key)
        assert set(drafts) <= {*end, *PROMPT, 0, 1, 2} | ({own[key]} if key else set()), key


def test_the_oldest_answers_of_whoever_has_more_than_a_share_make_room_for_new_ones():
    proposer = Suffix(most_bytes=10 * 1024 * 15)  # 10 pages
    source = random.Random(5)
    finished(proposer, ANSWER, YOURS)
    flood = [[source.randrange(10**6) for _ in range(300)] for _ in range(100)]
    for answer in flood:
        finished(proposer, answer, MINE)
    assert drafted(proposer, ANSWER[4:9], YOURS) == ANSWER[9:17], "a key's only answer was pushed out by another's"
    assert drafted(proposer, flood[0][:5], MINE) == []
    assert drafted(proposer, flood[-1][:5], MINE) == flood[-1][5:13]


def test_few_tokens_under_many_keys_push_out_no_key_that_has_more():
    proposer = Suffix(most_bytes=10 * 1024 * 15)  # 10 pages
    source = random.Random(5)
    answers = [[source.randrange(10**6) for _ in range(300)] for _ in range(12)]
    for number in range(200):
        finished(proposer, [number] * 3, b"before %d" % number)
    for answer in answers:
        finished(proposer, answer, MINE)
    for number in range(200):
        finished(proposer, [number] * 3, b"after %d" % number)
    assert all(drafted(proposer, answer[4:9], MINE) == answer[9:17] for answer in answers)
    assert drafted(proposer, PROMPT, b"after 199")[:1] == [199], "the newest small key has its answer"


@for_each("most", [0, 1, 3, 50])
def test_as_many_finished_answers_are_kept_as_were_asked_for_the_newest_ones(most):
    proposer = Suffix(max_cached_requests=most)
    source = random.Random(8)
    answers = [[source.randrange(10**6) for _ in range(source.choice([5, 300, 3_000]))] for _ in range(100)]
    for answer in answers:
        finished(proposer, answer, source.choice([MINE, YOURS]))
    found = [n for n, each in enumerate(answers) if any(drafted(proposer, each[:4], key) for key in (MINE, YOURS))]
    assert found == list(range(100 - most, 100))


def test_what_a_sequence_said_before_it_was_preempted_is_kept_once():
    proposer = Suffix(max_cached_requests=2)
    finished(proposer, ANSWER, MINE)
    answer = list(range(300, 340))
    entry = entering(PROMPT, store=MINE)
    for end in (0, 20, 20, 40):  # what it had said each time when it left
        proposer.enter(0, entry)
        proposer.leave(0, array(PROMPT + answer[:end]))
        entry = replace(entry, token_ids=array(PROMPT + answer[:end]).tobytes())
        assert drafted(proposer, ANSWER[4:9], MINE) == (ANSWER[9:17] if end < 40 else [])
    assert all(drafted(proposer, answer[end - 4 : end], MINE)[:1] == [answer[end]] for end in range(4, 40))


def test_an_answer_longer_than_a_page_is_found_throughout():
    proposer = Suffix(most_bytes=10 * 1024 * 15)
    answer = random.Random(6).sample(range(10**6), k=5_000)
    finished(proposer, answer, MINE)
    # The last token of a page is known to the next one as well.
    assert all(drafted(proposer, answer[end - 4 : end], MINE)[:1] == [answer[end]] for end in range(4, 5_000, 3))
