"""Holds tokens back from the detokenizer over several steps while nobody waits for them.

An answer that is neither streamed nor watched for stop strings is told at its end. While no other answer is under way
and the same sequences get one token each, their steps leave as one message: the fewer processes wake for every token,
the less they take from the workers, which may share their cores. The loop sends what `take` returns.
"""

from itertools import chain

from ..protocol.messages import Tokens, column, values

_MOST_STEPS = 32  # in one message


class TokenBuffer:
    def __init__(self) -> None:
        self._watched: set[int] = set()  # sequences whose tokens must leave at once
        self._held: list[Tokens] = []  # steps of the same sequences, one token each

    def take(self, message: Tokens) -> list[Tokens]:
        """Take a step's message; returns the messages to send now, in order."""
        self._note_watched(message)
        if not self._may_wait(message):
            return [*self._released(), message]
        leaving = [] if self._fits(message) else self._released()
        self._held.append(message)
        return leaving

    def _note_watched(self, message: Tokens) -> None:
        for opened in message.opened:
            if opened.is_streamed or opened.params.stop:
                self._watched.add(opened.sequence_id)
        for ended in message.ended:
            self._watched.discard(ended.sequence_id)

    def _may_wait(self, message: Tokens) -> bool:
        has_news = message.opened or message.resumed or message.ended or message.logprobs
        is_even = len(message.token_ids) == len(message.num_tokens)  # one token each
        return not self._watched and not has_news and is_even

    def _fits(self, message: Tokens) -> bool:
        if not self._held:
            return True
        return len(self._held) < _MOST_STEPS and self._held[0].sequence_ids == message.sequence_ids

    def _released(self) -> list[Tokens]:
        held, self._held = self._held, []
        return [_together(held)] if held else []


def _together(steps: list[Tokens]) -> Tokens:
    """Merge steps that gave the same sequences one token each into one message."""
    if len(steps) == 1:
        return steps[0]
    by_sequence = zip(*(values(step.token_ids) for step in steps), strict=True)
    num_sequences = len(steps[0].token_ids) // len(column([0]))
    return Tokens(
        steps[0].sequence_ids,
        column([len(steps)] * num_sequences),
        column(chain.from_iterable(by_sequence)),
        sum(step.forward_time for step in steps),
    )
