"""Plain decoding, where every token is sampled freely, and how an answer ends.

`request.py` defines what a strategy is. With the others, an answer is free until it calls a tool (`call_decoding.py`),
held to a grammar (`guided_decoding.py`), or one of several beams (`beam_decoding.py`). A step is planned without the
strategies that have no sequences. The tokens of a row that draws several are taken by `drawn.py`.
"""

from array import array
from collections.abc import Callable, Iterator
from itertools import islice

from ...protocol.messages import SequenceEnded, StepResult
from ...protocol.wire import values
from ..admission.queue import WaitingQueue
from ..grammar.constraint import Busy
from ..publisher import Publisher
from ..request import DecodingStrategy, Sequence
from ..running import RunningBatch
from ..step import ScheduledStep
from .drawn import certainty_of, take_drawn
from .speculation import Speculation

# An output is checked once per this many tokens, which is cheap enough for any number of sequences.
_LOOK_EVERY = 64
_LEAST_TIMES = 8


class PlainDecoding(DecodingStrategy):
    def __init__(
        self,
        sequences: dict[int, Sequence],
        running: RunningBatch,
        waiting: WaitingQueue,
        publisher: Publisher,
        restart: Callable[[Sequence], None],
    ) -> None:
        """`restart` computes a sequence again from its known tokens."""
        self._sequences = sequences
        self._running = running
        self._waiting = waiting
        self._publisher = publisher
        self._restart = restart
        self.speculation: Speculation | None = None  # if rows may have drafts

    def take_step(self, step: ScheduledStep, result: StepResult) -> "tuple[list[int], array[int]]":
        """Append each row's token to its sequence, and end the sequences that it completes. Returns the plain
        sequences with a token, and these tokens; other strategies take and publish their own."""
        sequence_ids: list[int] = []
        tokens = array("i")
        sampled = iter(values(result.sampled))
        for sequence in step.layered_sequences:
            sequence.silent_time += result.forward_time
            sequence.has_news = True
        for row, (sequence, count) in enumerate(zip(step.rows, values(result.num_sampled), strict=True)):
            token = next(sampled) if count else None
            at_drafts = array("i", islice(sampled, count - 1)) if count > 1 else ()
            # Surplus: it ended while this row was in flight. Surplus tokens are dropped only here.
            if sequence.has_ended:
                continue
            # A chunk that doesn't reach the end of its known tokens, or a row whose mask came too late.
            if token is None or sequence in step.dropped:
                sequence.silent_time += result.forward_time
                sequence.has_news = True
                continue
            if sequence.has_news:
                self._publisher.news(sequence)
            if row in step.several or sequence.claim is not None:
                drawn = array("i", (token, *at_drafts))
                counting = drawn[: step.num_masks.get(row)]
                num_taken = take_drawn(sequence, counting, certainty_of(result, row), self._publisher)
                if row in step.several and self.speculation is not None:
                    self.speculation.note_taken(sequence, len(drawn), num_taken)
                if num_taken < len(drawn) and not sequence.has_ended:
                    self._restart(sequence)
                continue
            if (take := sequence.decoding.take) is not None:
                take(sequence, token, step.forced.get(sequence))
                continue
            sequence_ids.append(sequence.id)
            tokens.append(token)
            sequence.output.append(token)
            sequence.num_known = num_known = sequence.num_known + 1
            # The same test as in `end_at`: done here first, it saves a call for every token but the last.
            if (token in sequence.possible_ends or num_known >= sequence.next_look) and (
                ended := end_at(sequence, token)
            ):
                sequence.decoding.end(sequence, ended)
        return sequence_ids, tokens

    def follow(self, sequence: Sequence, tokens: "array[int]") -> None:
        sequence.output.extend(tokens)
        sequence.num_known += len(tokens)
        if (ended := end_at(sequence, tokens[-1])) is not None:
            self.end(sequence, ended)

    def give_way(self, sequence: Sequence) -> None:
        self._waiting.push(sequence)

    def end(self, sequence: Sequence, ended: SequenceEnded) -> None:
        sequence.has_ended = True
        del self._sequences[sequence.id]
        if sequence.is_running:
            # Its last token was sampled but deliberately not computed, so surplus positions must not become findable.
            self._running.leave(sequence, min(sequence.num_computed, sequence.num_known - 1))
        elif sequence.is_waiting:
            self._waiting.leave(sequence)
        self._publisher.end(sequence, ended)


def refused(sequence: Sequence, refusal: Busy | str) -> SequenceEnded:
    """The end of a sequence whose request can't be computed."""
    code, why = (429, refusal.why) if isinstance(refusal, Busy) else (400, refusal)
    return SequenceEnded(sequence.id, "error", error_code=code, error_msg=why)


def end_at(sequence: Sequence, token: int) -> SequenceEnded | None:
    """The end of a sequence whose newest tokens end it: by a cycle (surplus tokens are dropped here), an end token,
    a stop word's last token, or the token limit."""
    if sequence.num_known >= sequence.next_look and (length := end_of_cycle(sequence)) is not None:
        del sequence.output[length:]
        sequence.num_known = sequence.num_prompt + length
        return SequenceEnded(sequence.id, "stop", "repetition")
    if token in sequence.possible_ends and sequence.num_known >= sequence.request.min_total:
        if token in sequence.endings:
            return SequenceEnded(sequence.id, "stop", sequence.endings[token])
        if any(sequence.output[-len(word) :] == word for word in sequence.request.stop_words):
            return SequenceEnded(sequence.id, "stop", token)
    if sequence.num_known >= sequence.max_total:
        return SequenceEnded(sequence.id, "length")
    return None


def repetitive(step: ScheduledStep, result: StepResult) -> Iterator[Sequence]:
    """Sequences that end with this step because the model repeats itself (`early_stop`).

    A sequence ends after enough tokens in a row that were at least as likely as the request's threshold. The worker
    reports this for each token and the count is kept here, so other rows of the batch and steps in flight make no
    difference.
    """
    certainty = values(result.certainty)
    for row, is_certain in zip(certainty[::2], certainty[1::2], strict=True):
        sequence = step.rows[row]
        early_stop = sequence.params.early_stop
        if early_stop is None or sequence.has_ended or sequence in step.dropped:
            continue
        if row in step.several or sequence.claim is not None:  # counted where its tokens are taken
            continue
        sequence.num_certain = sequence.num_certain + 1 if is_certain else 0
        if sequence.num_certain >= early_stop.window_size:
            yield sequence


# --- answers that have become a cycle of a few tokens ----------------------------------------------------------------
# (`early_stop` with the strategy "cycle".) A sequence is looked at when its output has certain lengths, and each time
# only the tokens up to that length count. So neither other requests nor how many tokens a step brought change where an
# answer ends.


def end_of_cycle(sequence: Sequence) -> int | None:
    """The length at which the output has become a cycle, of all lengths that are due for a check; None if it hasn't."""
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
    """Whether the tokens repeat one cycle eight times or more; the last time may be cut short."""
    return any(
        tokens[-1 - length] == tokens[-1] and tokens[length:] == tokens[:-length]
        for length in range(1, len(tokens) // _LEAST_TIMES + 1)
    )
