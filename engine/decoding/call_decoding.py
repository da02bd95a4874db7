"""Decodes answers that may call tools: freely outside the calls, each of which `guided_decoding.py` takes over.

No mask is computed before a call begins. When the last token of a call's mark arrives, the next steps are already in
flight: their tokens for the sequence are dropped and sampled again under a mask.
"""

from array import array
from collections.abc import Callable

from ..admission.queue import WaitingQueue
from ..counters import Counters
from ..grammar.calls import CallWatch
from ..grammar.constraint import Busy
from ..publisher import Publisher
from ..request import Sequence
from ..running import RunningBatch
from .guided_decoding import GuidedDecoding
from .strategy import PlainDecoding


class CallDecoding(PlainDecoding):
    def __init__(
        self,
        sequences: dict[int, Sequence],
        running: RunningBatch,
        waiting: WaitingQueue,
        publisher: Publisher,
        restart: Callable[[Sequence], None],
        guided: GuidedDecoding,
        counters: Counters,
    ) -> None:
        super().__init__(sequences, running, waiting, publisher, restart)
        self._guided = guided
        self._counters = counters

    def begin(self, sequence: Sequence) -> Busy | str | None:
        """Begin a sequence, whose prompt may end with the mark of a call."""
        prompt = sequence.request.prompt
        sequence.watch = CallWatch(prompt.calls, prompt.thought)
        guide = sequence.watch.begun(sequence)
        return None if guide is None else self._guided.hold(sequence, guide)

    def take(self, sequence: Sequence, token: int, forced: "array[int] | None") -> None:
        tokens = array("i", (token,))
        self._publisher.add_tokens(sequence, tokens)
        self._counters.generated_tokens += 1
        self.follow(sequence, tokens)

    def follow(self, sequence: Sequence, tokens: "array[int]") -> None:
        """Take the next token, which may end the answer or begin a call."""
        super().follow(sequence, tokens)
        watch = _watch(sequence)
        if not sequence.has_ended and watch.take(tokens[-1]) and (guide := watch.begun(sequence)) is not None:
            self._guided.hold_at_once(sequence, guide)

    def resume(self, sequence: Sequence) -> None:
        """Continue after a thought or a call; the token after it is known, too, and may begin the next call."""
        watch = _watch(sequence)
        watch.end_thought()
        if (guide := watch.begun(sequence)) is not None:
            self._guided.hold_at_once(sequence, guide)


def _watch(sequence: Sequence) -> CallWatch:
    if sequence.watch is None:
        prompt = sequence.request.prompt
        sequence.watch = CallWatch(prompt.calls, prompt.thought)
    return sequence.watch
