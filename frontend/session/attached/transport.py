"""Sends requests and questions to the daemon, and distributes the deltas and answers that it sends.

One thread reads all of the daemon's messages, so any number of the caller's threads and event loops may wait.
"""

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Sequence

from ....protocol.attach import (
    HEADER_BYTES,
    LONGEST_FRAME,
    MOST_NUMBERS,
    MOST_REQUESTS,
    Answer,
    Ask,
    AskStats,
    Cancel,
    Declined,
    Drop,
    Failed,
    OutputDeltas,
    Question,
    SaidMore,
    WireRequest,
    frame,
)
from ....protocol.errors import ClosedError, PenstockError, same_error
from ....protocol.parameters.sampling import SamplingParams
from ....protocol.stats import Stats
from ..transport import CLOSED_MEANWHILE, Transport
from .connection import DaemonConnection, DaemonMessage
from .patience import Patience
from .request import AttachedRequest

# Larger groups of requests are split into several messages: the daemon makes room for one message at a time.
_GOOD_BYTES = 1 << 20


class DaemonTransport(Transport[AttachedRequest]):
    """Leaves the daemon with `close()`; its requests end there within moments, however this process ends."""

    def __init__(self, connection: DaemonConnection, watchdog_timeout: float) -> None:
        super().__init__()  # `error` is the reason why the connection ended
        self.connection = connection
        self._patience = Patience(connection, watchdog_timeout, lambda: bool(self._pending or self._answers))
        self._queries = itertools.count()
        self._answers: dict[int, queue.SimpleQueue[Answer | None]] = {}
        self._thread = threading.Thread(target=self._receive, name="penstock-client", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[AttachedRequest]) -> None:
        self.check()
        self._begin(requests)
        self._patience.wake()  # before sending, which blocks if the daemon has hung
        for group in _alike(requests):
            self._send(group)
        # The connection may have ended in between, after the thread had failed all requests that it knew.
        if self.error is not None:
            self._fail_all(self.error)

    def abort(self, requests: Iterable[AttachedRequest]) -> None:
        numbers = [request.request_id for request in self._forget(request.request_id for request in requests)]
        if self.error is None and not self.is_closed:
            self._send_numbers(Drop, numbers)

    def cancel(self, requests: Iterable[AttachedRequest]) -> None:
        self.check()
        self._send_numbers(Cancel, [request.request_id for request in requests])

    def _send_numbers(self, kind: type[Drop | Cancel], numbers: list[int]) -> None:
        for start in range(0, len(numbers), MOST_NUMBERS):
            self.connection.send(kind(numbers[start : start + MOST_NUMBERS]))

    def _send(self, requests: list[AttachedRequest]) -> None:
        """Send requests in messages of moderate size; a request that is too long for any message ends alone."""
        packed, fault = _packed(requests)
        if len(requests) > 1 and (fault or len(packed) > _GOOD_BYTES or len(requests) > MOST_REQUESTS):
            half = len(requests) // 2
            self._send(requests[:half])
            self._send(requests[half:])
        elif not fault:
            self.connection.send_frame(packed)
            for sent in requests:
                sent.wire.media = b""  # the daemon has them now
        elif (request := self._pending.pop(requests[0].request_id, None)) is not None:
            request.refuse(fault)
            request.tell()

    def stats(self) -> Stats:
        stats = self.ask(AskStats).stats
        if stats is None:
            raise self.connection.lost()
        return stats

    def ask(self, question: Callable[[int], Question]) -> Answer:
        """Ask the daemon and wait for its answer; raises its failure."""
        self.check()
        query = next(self._queries)
        arrived = self._answers[query] = queue.SimpleQueue()
        self._patience.wake()
        try:
            self.connection.send(question(query))
            if self.error is not None:  # it ended before this question was registered
                raise same_error(self.error)
            answer = arrived.get()
        finally:
            del self._answers[query]
        if answer is None:
            self.check()
            raise self.connection.lost()
        if answer.failure is not None:
            raise answer.failure.error()
        return answer

    def close(self) -> None:
        """Leave the daemon; requests still running fail. Safe to call twice, and a no-op in a forked copy."""
        if self.is_closed or self.is_forked:
            return
        self.is_closed = True
        self._patience.end()
        self.connection.hang_up()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self.connection.close()
        self.on_close()

    # --- the receiving thread ------------------------------------------------------------------------------------

    def _receive(self) -> None:
        why: PenstockError | None = None
        broken: BaseException | None = None
        try:
            while (message := self.connection.receive()) is not None:
                if isinstance(message, Declined):  # the daemon's last word
                    why = message.failure.error()
                self._dispatch(message)
        except BaseException as error:  # whatever it is: nobody else would tell the waiting callers
            broken = error
        if self.is_closed:
            self._fail_all(ClosedError(CLOSED_MEANWHILE))
        else:
            self.error = why or self.connection.lost()
            self.error.__cause__ = broken
            self.connection.hang_up()
            self._fail_all(self.error)
        for asking in list(self._answers.values()):
            asking.put(None)

    def _dispatch(self, message: DaemonMessage) -> None:
        if isinstance(message, OutputDeltas):
            for delta in message.deltas:
                # Unknown: dropped by us while the delta was being sent.
                if (request := self._pending.get(delta.number)) is not None:
                    request.add(delta)
                    if request.is_finished:
                        self._pending.pop(delta.number, None)
                    request.tell()
        elif isinstance(message, SaidMore):
            if (request := self._pending.get(message.number)) is not None:
                request.add_said(message.said)
        elif isinstance(message, Failed):
            self._fail(message.numbers, message.failure.error())
        elif isinstance(message, Answer) and (asking := self._answers.get(message.query)) is not None:
            asking.put(message)

    def _fail_all(self, error: PenstockError) -> None:
        self._fail(list(self._pending), error)


def _alike(requests: Sequence[AttachedRequest]) -> Iterable[list[AttachedRequest]]:
    """Groups of requests with the same parameters of a search or of pooling, which an `Ask` states once."""
    alike: dict[tuple[int, int], list[AttachedRequest]] = {}
    for request in requests:
        alike.setdefault((id(request.prompt.beams), id(request.prompt.pooled)), []).append(request)
    return alike.values()


def _packed(requests: list[AttachedRequest]) -> tuple[bytes, str]:
    """The requests as a frame, or an error message if that is impossible."""
    try:
        packed = frame(_ask(requests))
    except Exception as error:  # a number of more than 64 bits, say
        return b"", f"The request can't be sent to the daemon: {error}."
    if len(packed) - HEADER_BYTES <= LONGEST_FRAME:
        return packed, ""
    words = f"The request takes {len(packed) >> 20:,} MiB, and a daemon takes {LONGEST_FRAME >> 20} MiB in one message."
    smaller = "Send fewer or smaller pictures, or use" if any(each.wire.media for each in requests) else "Use"
    return b"", f"{words} {smaller} a private tree for it."


def _ask(requests: list[AttachedRequest]) -> Ask:
    """Build an `Ask` of alike requests; a batch shares its parameters, so they are sent once."""
    params: list[SamplingParams] = []
    indices: dict[int, int] = {}
    wires: list[WireRequest] = []
    for request in requests:
        index = indices.setdefault(id(request.prompt.params), len(params))
        if index == len(params):
            params.append(request.prompt.params)
        request.wire.params = index
        wires.append(request.wire)
    return Ask(wires, params, requests[0].prompt.beams, requests[0].prompt.pooled)
