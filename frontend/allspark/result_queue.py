"""`ResultQueue`: the answer to one request, read as it comes, from any number of threads.

The receiving thread only notes that something came; whoever looks next takes it from the request, so that what nobody
has read yet is merged there. A `Get` waits on a condition. Each token is given out once.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...protocol.errors import PenstockError
from ...protocol.fields.rules import shown
from ...protocol.outputs import LogprobsByToken, RequestMetrics, RequestOutput
from ..requests.request import Request
from ..session.session import Stream
from .names import GenerateRequestStatus

_FINISHED = ("stop", "length")
_LONGEST_MILLISECONDS = 10**11  # three years, which a condition can still wait for


@dataclass
class GeneratedElements:
    """The output since the previous `Get`."""

    ids_from_generate: list[int] = field(default_factory=list)
    # [token][top][id, natural logarithm], most likely first
    log_probs_list: list[list[list[Any]]] = field(default_factory=list)
    token_logprobs_list: list[float] = field(default_factory=list)  # of the tokens themselves
    prefix_cache_len: int = 0  # tokens of the prompt that were found computed
    prefix_len_gpu: int = 0
    prefix_len_cpu: int = 0


class ResultQueue:
    """Readable as long as the caller holds it, whatever becomes of its request, its model and its engine."""

    def __init__(
        self, num_prompt: int, num_top: int | None, on_gpu: bool, on_end: Callable[["ResultQueue"], None]
    ) -> None:
        self._changed = threading.Condition()
        self._stream: Stream[Any] | None = None  # None: nothing more comes
        self._has_news = False
        self._on_end = on_end  # called once, by the thread that hears of the end
        self._num_top = num_top
        self._on_gpu = on_gpu
        self._new = GeneratedElements()
        self._is_interrupted = self._is_over = False
        self._is_end_known = False  # to whoever asks for the status, though tokens are left
        self._cause = ""
        self._figures = _Figures(num_prompt)

    # --- for those who read it -----------------------------------------------------------------------------------

    def Get(self) -> GeneratedElements | None:
        """Everything new, as soon as there is something; None when the request has ended and all was taken."""
        return self._get(None)

    def GetWithTimeout(self, timeout_ms: float) -> GeneratedElements | None:
        """The same, or None after so many milliseconds without anything new."""
        return self._get(_seconds(timeout_ms))

    def GetNoWait(self) -> GeneratedElements | None:
        """Everything new, or None."""
        return self._get(0.0)

    def GenerateStatus(self) -> GenerateRequestStatus:
        """Where the request is. A loop of `Get` and `GenerateStatus`, as DashInfer's page has it, leaves at the end and
        would lose what came between the two calls. So an end of its own is reported when everything was taken, or from
        the second question after a `Get` on."""
        with self._changed:
            self._take_in()
            if self._is_over and self._is_interrupted:
                return GenerateRequestStatus.GenerateInterrupted
            if self._is_over and (self._is_end_known or not self._new.ids_from_generate):
                return GenerateRequestStatus.GenerateFinished
            self._is_end_known = self._is_over
            return _RUNNING[min(self._figures.num_generated, 2)]

    def GeneratedLength(self) -> int:
        """Tokens generated so far, taken or not."""
        with self._changed:
            self._take_in()
            return self._figures.num_generated

    def RequestStatInfo(self) -> dict[str, Any]:
        """Figures of the request: times in Unix seconds, durations in milliseconds, tokens a second."""
        with self._changed:
            self._take_in()
            return self._figures.as_dict()

    @property
    def interruption(self) -> str:
        """Why it was interrupted, in a sentence; empty if it was not."""
        with self._changed:
            self._take_in()
            return self._cause

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the request, leaving what has come for others; whether it has ended."""
        with self._changed:
            self._is_end_known = self._changed.wait_for(self._has_ended, seconds)
            return self._is_end_known

    def _get(self, seconds: float | None) -> GeneratedElements | None:
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended() or self._new.ids_from_generate, seconds)
            if not self._new.ids_from_generate:
                return None
            taken, self._new = self._new, GeneratedElements()
            self._is_end_known = False
            return taken

    # --- for the engine ------------------------------------------------------------------------------------------

    def attach(self, stream: Stream[Any]) -> None:
        """The request whose answer it is; before the request is submitted."""
        self._stream = stream

    def hear(self, request: Request) -> None:
        """Something has come; called by the receiving thread."""
        with self._changed:
            self._has_news = True
            if request.error is None:
                self._figures.note_time(time.time())
            self._changed.notify_all()
        if request.is_finished or request.error is not None:
            self._on_end(self)

    def interrupt(self, cause: str) -> None:
        """End it here and now, with its output so far."""
        with self._changed:
            self._take_in()
            stream, self._stream = self._stream, None
            if not self._is_over:
                self._end(is_interrupted=True, cause=cause)
        if stream is not None:
            stream.abort()

    def cancel(self) -> None:
        """Have it ended by the engine, which hands over what it has; raises if the tree is not there any more."""
        stream = self._stream
        if stream is not None:
            stream.cancel()

    # --- taking in what has come -----------------------------------------------------------------------------------

    def _has_ended(self) -> bool:
        self._take_in()
        return self._is_over

    def _take_in(self) -> None:
        while self._has_news and self._stream is not None:
            self._has_news = False
            try:
                while not self._is_over and (output := self._stream.poll()) is not None:
                    self._merge(output)
            except PenstockError as error:
                self._end(is_interrupted=True, cause=str(error))
            if self._is_over:
                self._stream = None

    def _merge(self, output: RequestOutput) -> None:
        answer, new = output.outputs[0], self._new
        new.ids_from_generate += answer.token_ids
        cached = self._figures.num_cached = max(self._figures.num_cached, output.num_cached_tokens)
        new.prefix_cache_len = cached
        new.prefix_len_gpu, new.prefix_len_cpu = (cached, 0) if self._on_gpu else (0, cached)
        if self._num_top is not None:
            for token, entry in zip(answer.token_ids, answer.logprobs or ()):
                new.token_logprobs_list.append(entry[token].logprob)
                new.log_probs_list.append(_most_likely(entry, self._num_top))
        self._figures.num_generated += len(answer.token_ids)
        if output.finished:
            self._figures.take(output.metrics)
            is_interrupted = answer.finish_reason not in _FINISHED
            self._end(is_interrupted=is_interrupted, cause=output.error_msg or "")

    def _end(self, *, is_interrupted: bool, cause: str) -> None:
        self._is_over, self._is_interrupted = True, is_interrupted
        self._cause = cause if is_interrupted else ""
        self._figures.end_time = self._figures.end_time or time.time()
        self._changed.notify_all()


def _seconds(milliseconds: Any) -> float:
    is_number = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    if not is_number or milliseconds != milliseconds:
        raise TypeError(f"timeout_ms={shown(milliseconds)}: must be a number of milliseconds.")
    return max(0.0, float(min(milliseconds, _LONGEST_MILLISECONDS))) / 1000


_RUNNING = (GenerateRequestStatus.Init, GenerateRequestStatus.ContextFinished, GenerateRequestStatus.Generating)


def _most_likely(entry: LogprobsByToken, count: int) -> list[list[Any]]:
    """The most likely tokens in their order; the one that was chosen is among them only if it is one of them."""
    ranked = sorted((each for each in entry.items() if each[1].rank <= count), key=lambda each: each[1].rank)
    return [[token, found.logprob] for token, found in ranked]


@dataclass
class _Figures:
    """Times in Unix seconds, as they were seen here until the engine's own come with the end."""

    num_prompt: int
    arrival: float = field(default_factory=time.time)
    start: float | None = None  # of its computation
    first_token: float | None = None
    last_token: float | None = None
    end_time: float | None = None
    num_generated: int = 0
    num_cached: int = 0

    def note_time(self, now: float) -> None:
        self.first_token = self.first_token or now
        self.last_token = now

    def take(self, metrics: RequestMetrics | None) -> None:
        if metrics is None:
            return
        self.arrival, self.start = metrics.arrival_time, metrics.inference_start_time
        if metrics.first_token_time is not None:
            self.first_token = metrics.arrival_time + metrics.first_token_time
        if metrics.inference_start_time is not None and metrics.model_execute_time is not None:
            self.end_time = metrics.inference_start_time + metrics.model_execute_time
            # It was heard of a little after it came, and may have come before the end.
            self.last_token = min(self.last_token or self.end_time, self.end_time)

    def as_dict(self) -> dict[str, Any]:
        has_token = self.num_generated > 0
        first, last = (self.first_token, self.last_token) if has_token else (None, None)
        start = self.start or self.arrival
        return {
            "arrival_time": self.arrival,
            "first_token_time": first or 0.0,
            "last_token_time": last or 0.0,
            "time_to_first_token": _milliseconds(self.arrival, first),
            "time_in_queue": _milliseconds(self.arrival, self.start),
            "finished_time": _milliseconds(self.arrival, self.end_time),
            "context_token_length": self.num_prompt,
            "generated_token_length": self.num_generated,
            "context_cached_length": self.num_cached,
            "context_tps": _per_second(self.num_prompt, start, first),
            "generate_tps": _per_second(self.num_generated - 1, first, last),
        }


def _milliseconds(start: float, end: float | None) -> float:
    return 0.0 if end is None else max(0.0, (end - start) * 1000)


def _per_second(count: int, start: float | None, end: float | None) -> float:
    return count / (end - start) if start is not None and end is not None and end > start else 0.0
