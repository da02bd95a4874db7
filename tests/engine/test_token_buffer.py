"""Tokens that nobody waits for leave together: what the detokenizer makes of them stays the same."""

from penstock.engine.publisher import TokenBuffer
from penstock.protocol.messages import SequenceEnded, SequenceOpened, Tokens, column, values, wide_column
from penstock.protocol.parameters.sampling import SamplingParams


def opened(sequence_id: int, *, is_streamed: bool = False, **params) -> SequenceOpened:
    return SequenceOpened(sequence_id, 1, column([5]), SamplingParams(**params), is_streamed, 0, 0.0, 0.0, 0.0)


def step(*tokens: int, ids=(1, 2), **news) -> Tokens:
    return Tokens(wide_column(ids), column([1] * len(tokens)), column(tokens), 0.25, **news)


def plain(message: Tokens) -> tuple[list[int], list[int], float]:
    return values(message.num_tokens).tolist(), values(message.token_ids).tolist(), message.forward_time


def test_steps_of_the_same_sequences_leave_together_sequence_by_sequence():
    held = TokenBuffer()
    first = step(1, 11, opened=[opened(1), opened(2)])
    assert held.take(first) == [first], "a first token is told at once"
    assert held.take(step(2, 12)) == held.take(step(3, 13)) == []
    last = step(4, 14, ended=[SequenceEnded(1, "length")])
    together, after = held.take(last)
    assert plain(together) == ([2, 2], [2, 3, 12, 13], 0.5)
    assert after is last


def test_other_sequences_do_not_join_what_is_held():
    held = TokenBuffer()
    assert held.take(step(2, 12)) == []
    assert [plain(each) for each in held.take(step(3, ids=[1]))] == [([1, 1], [2, 12], 0.25)]
    assert [plain(each) for each in held.take(step(4, 9, ids=[1, 3], opened=[opened(3)]))] == [
        ([1], [3], 0.25),
        ([1, 1], [4, 9], 0.25),
    ]


def test_nothing_is_held_while_someone_waits_for_every_token():
    for watched in (opened(2, is_streamed=True), opened(2, stop=["."])):
        held = TokenBuffer()
        held.take(step(1, 11, opened=[opened(1), watched]))
        following = step(2, 12)
        assert held.take(following) == [following]
        held.take(step(3, 13, ended=[SequenceEnded(2, "length")]))
        assert held.take(step(4, ids=[1])) == [], "the last one that was watched has ended"


def test_what_is_held_does_not_grow_without_end():
    held = TokenBuffer()
    left = [message for _ in range(100) for message in held.take(step(1, 11))]
    assert len(left) == 3
    assert {len(values(message.token_ids)) for message in left} == {64}


def test_tokens_that_came_several_at_once_are_not_mixed_up():
    held = TokenBuffer()
    several = Tokens(wide_column([1]), column([3]), column([7, 8, 9]), 0.5)
    assert held.take(several) == [several]
