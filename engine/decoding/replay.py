"""Replays the tokens that an answer had said before its request came here, so that it goes on from there.

Afterwards the sequence is in the state of one that was preempted after these tokens. Each is taken as if it had just
been sampled, so stop words, cycles, thoughts, grammars and calls have seen it. This happens before the sequence is
queued. If a grammar must first be compiled, or followed in another process, the sequence is held, and the rest is
replayed once that is done. Nothing is published: the detokenizer gets the tokens when the sequence is opened.
"""

from array import array

from ...protocol.messages import Said, SequenceEnded
from ...protocol.wire import float_values, values
from ..request import Sequence


def replay(sequence: Sequence, said: Said) -> None:
    """Take the tokens that are not taken yet, until the sequence is held or has ended."""
    if not sequence.output:
        _count_certain(sequence, said)
    tokens = values(said.token_ids)
    while len(sequence.output) < len(tokens) and not (sequence.has_ended or sequence.is_held):
        start = len(sequence.output)
        # One by one, since each may change the strategy, unless another process holds the sequence to its end.
        end = len(tokens) if _is_followed_to_its_end(sequence) else start + 1
        sequence.decoding.follow(sequence, tokens[start:end])


def _is_followed_to_its_end(sequence: Sequence) -> bool:
    constraint, guide = sequence.constraint, sequence.guide
    return constraint is not None and constraint.is_remote and guide is not None and guide.is_final


def _count_certain(sequence: Sequence, said: Said) -> None:
    """Count the last tokens that were likely enough for an `early_stop` to count them."""
    early_stop = sequence.request.prompt.params.early_stop
    if early_stop is None or early_stop.least_logprob is None:
        return
    [least] = array("f", (early_stop.least_logprob,))  # as the worker compares
    chosen = [logprob for part in said.logprobs for logprob in float_values(part.logprobs)[:: part.width]]
    unlikely = (count for count, logprob in enumerate(reversed(chosen)) if logprob < least)
    sequence.num_certain = next(unlikely, len(chosen))
    if sequence.num_certain >= early_stop.window_size:
        sequence.decoding.end(sequence, SequenceEnded(sequence.id, "stop", "repetition"))
