"""How a sequence gets its tokens: freely, until it calls a tool (`call_decoding.py`), within a grammar
(`guided_decoding.py`), or as a beam (`beam_decoding.py`).

The scheduler plans every sequence alike and asks its strategy only where they differ. A step is planned without the
strategies that have no sequences. Speculative decoding would be a further class with the same few methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from ...protocol.messages import SequenceEnded, StepResult, values
from ..admission.queue import WaitingQueue
from ..grammar.constraint import Busy
from ..publisher import Publisher
from ..request import Sequence
from ..running import RunningBatch
from ..step import ScheduledStep
from .cycles import end_of_cycle

Take = Callable[[ScheduledStep, Sequence, int], None]
Waits = Callable[[Sequence], bool]


class DecodingStrategy(ABC):
    # Takes the token that a step has sampled; None if appending it is all, which the scheduler does by itself.
    take: Take | None = None
    # Whether the next step depends on a result that is not here yet; None if it never does.
    waits: Waits | None = None

    def begin(self, sequence: Sequence) -> Busy | str | None:
        """Prepare a new sequence, which may be held for that. Returns a refusal, if any."""
        return None

    @abstractmethod
    def give_way(self, sequence: Sequence) -> None:
        """The sequence was preempted: put it in the queue, unless it must wait for something else first."""

    @abstractmethod
    def end(self, sequence: Sequence, ended: SequenceEnded) -> None:
        """End the sequence, whatever its state. There is no other way out."""

    def num_candidates(self, sequence: Sequence) -> int:
        """How many candidates for the next token its row returns instead of sampling one."""
        return 0

    def holds_others(self, sequence: Sequence) -> bool:
        """Whether running sequences wait for this one."""
        return False


class ActiveDecoding(DecodingStrategy):
    """A strategy that takes part in planning every step while it has members."""

    def __init__(self) -> None:
        self.members: set[Sequence] = set()  # its sequences that have not ended

    def before_decodes(self, step: ScheduledStep) -> None:
        """Blocks have been made free, and no row has been added to the step."""

    def after_decodes(self, step: ScheduledStep, budget: int) -> None:
        """The step has a row of one token for each decoding sequence, and room for `budget` more tokens."""

    def after_admission(self, step: ScheduledStep) -> None:
        """The step has all its rows."""

    def before_results(self) -> None:
        """The results of a step have come."""


class PlainDecoding(DecodingStrategy):
    def __init__(
        self, sequences: dict[int, Sequence], running: RunningBatch, waiting: WaitingQueue, publisher: Publisher
    ) -> None:
        self._sequences = sequences
        self._running = running
        self._waiting = waiting
        self._publisher = publisher

    def resume(self, sequence: Sequence) -> None:
        """The sequence is free again behind what held it."""

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
    """The end of a sequence whose newest tokens end it: with a cycle, of which surplus tokens are dropped here, an end
    token, a stop word's last, or the last it may have."""
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
    """The sequences that this step's tokens end because the model repeats itself (`early_stop`).

    That is: so many tokens in a row were as likely as the request's threshold. The worker reports this for each token
    and the count is kept here, so that the other rows of a batch and the steps in flight make no difference.
    """
    certainty = values(result.certainty)
    for row, is_certain in zip(certainty[::2], certainty[1::2], strict=True):
        sequence = step.rows[row]
        early_stop = sequence.params.early_stop
        if early_stop is None or sequence.has_ended or sequence in step.dropped:
            continue
        sequence.num_certain = sequence.num_certain + 1 if is_certain else 0
        if sequence.num_certain >= early_stop.window_size:
            yield sequence
