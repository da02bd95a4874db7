"""Ends answers that have become a cycle of a few tokens (`early_stop` with the strategy "cycle").

A sequence is looked at when its output has certain lengths, and each time only the tokens up to that length count. So
neither other requests nor how many tokens a step brought change where an answer ends.
"""

from array import array

from ..request import Sequence

# An output is looked at once in so many tokens, which is cheap enough for any number of sequences.
_LOOK_EVERY = 64
_LEAST_TIMES = 8


def end_of_cycle(sequence: Sequence) -> int | None:
    """The length at which the output has become a cycle, looking at all lengths that are due; None if it hasn't."""
    window = sequence.request.cycle_window
    while window is not None and sequence.next_look <= min(sequence.num_known, sequence.max_total):
        length = sequence.next_look - sequence.num_prompt
        is_due = length >= window and sequence.next_look >= sequence.request.min_total
        if is_due and is_cycle(sequence.output[length - window : length]):
            return length
        sequence.next_look += _LOOK_EVERY
    sequence.next_look = min(sequence.next_look, sequence.max_total)
    return None


def is_cycle(tokens: "array[int]") -> bool:
    """Return whether the tokens are one cycle, repeated eight times or more; the last time may be cut short."""
    return any(
        tokens[-1 - length] == tokens[-1] and tokens[length:] == tokens[:-length]
        for length in range(1, len(tokens) // _LEAST_TIMES + 1)
    )
