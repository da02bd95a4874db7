"""Judges the tokens that an answer is claimed to have by those that `worker/steps/drafts.py` draws at their places.

The claimed tokens are drafts. They are computed like a prompt, in chunks, and the workers draw a token at the place of
each, so a row brings several. These are taken one by one through the sequence's strategy, as if each had come in a step
of its own: ends, grammars and calls see what they saw when the answer was made. The first token that isn't the claimed
one ends the sequence. A token that begins a call changes the masks of the row's later tokens, which are then dropped
and drawn again.
"""

from array import array
from collections.abc import Iterator

from ...protocol.messages import SequenceEnded, StepResult
from ...protocol.wire import values
from ..publisher import Publisher
from ..request import Sequence


def take_drawn(sequence: Sequence, tokens: "array[int]", certain: Iterator[bool], publisher: Publisher) -> None:
    """Take the tokens drawn in a row of a sequence, and publish those that count."""
    claim, guide, num_before = sequence.claim or (), sequence.guide, len(sequence.output)
    for index, token in enumerate(tokens, start=num_before):
        sequence.num_drafted = max(0, sequence.num_drafted - 1)
        sequence.decoding.follow(sequence, array("i", (token,)))
        is_repetitive = _counts_as_repetition(sequence, certain)
        if sequence.has_ended:
            break
        if is_repetitive:
            sequence.decoding.end(sequence, SequenceEnded(sequence.id, "stop", "repetition"))
            break
        if index >= len(claim) or token != claim[index]:
            sequence.decoding.end(sequence, SequenceEnded(sequence.id, "abort"))
            break
        if sequence.guide is not guide and sequence.guide is not None:
            break
    taken = sequence.output[num_before:]
    publisher.take_drawn(sequence, len(taken))
    publisher.add_tokens(sequence, taken)


def certainty_of(result: StepResult, row: int) -> Iterator[bool]:
    """Whether each token that a row has drawn was likely enough for an `early_stop` to count it."""
    pairs = values(result.certainty)
    return (bool(is_certain) for each, is_certain in zip(pairs[::2], pairs[1::2], strict=True) if each == row)


def _counts_as_repetition(sequence: Sequence, certain: Iterator[bool]) -> bool:
    """Whether the newest token makes the answer end because the model repeats itself."""
    early_stop = sequence.params.early_stop
    if early_stop is None or early_stop.least_logprob is None:
        return False
    sequence.num_certain = sequence.num_certain + 1 if next(certain) else 0
    return sequence.num_certain >= early_stop.window_size
