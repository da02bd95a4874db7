"""Takes the tokens of a row that has drawn several at drafts, as `worker/steps/drafts.py` lets it.

They are taken one by one through the sequence's strategy, as if each had come in a step of its own: ends, grammars and
calls see what they always see. A token that begins a call changes the masks of the row's later tokens; these are
dropped and drawn again. Claimed tokens (`Prompt.claims`) are drafts that were sent with the request: the first drawn
token that isn't the claimed one ends the sequence, whatever else it would have ended with.
"""

from array import array
from collections.abc import Iterator

from ...protocol.messages import SequenceEnded, StepResult
from ...protocol.wire import values
from ..publisher import Publisher
from ..request import Sequence


def take_drawn(sequence: Sequence, tokens: "array[int]", certain: Iterator[bool], publisher: Publisher) -> int:
    """Take the tokens drawn in a row of a sequence, publish those that count, and return how many these are."""
    num_before = len(sequence.output)
    for token in tokens:
        if not _take(sequence, token, certain):
            break
    taken = sequence.output[num_before:]
    publisher.take_drawn(sequence, len(taken))
    publisher.add_tokens(sequence, taken)
    return len(taken)


def _take(sequence: Sequence, token: int, certain: Iterator[bool]) -> bool:
    """Take one token; whether the next one of its row counts."""
    guide, index, claim = sequence.guide, len(sequence.output), sequence.claim
    sequence.num_claimed = max(0, sequence.num_claimed - 1)
    if claim is not None and (index >= len(claim) or token != claim[index]):
        # Not left to its strategy: whether a grammar ends with it may be known later, in another process.
        sequence.output.append(token)
        sequence.num_known += 1
        sequence.decoding.end(sequence, SequenceEnded(sequence.id, "abort"))
        return False
    sequence.decoding.follow(sequence, array("i", (token,)))
    is_repetitive = _counts_as_repetition(sequence, certain)
    if sequence.has_ended:
        return False
    if is_repetitive:
        sequence.decoding.end(sequence, SequenceEnded(sequence.id, "stop", "repetition"))
        return False
    # Another process that has begun to follow its grammar is told of one token at a time.
    is_remote = sequence.constraint is not None and sequence.constraint.is_remote
    return not is_remote and (sequence.guide is guide or sequence.guide is None)


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
