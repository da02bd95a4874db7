"""Thread pools in which clients take turns, a model's set of pools, and a queue from threads to an event loop.

A pool is for one kind of work, and a model has one for each: a slow worker, tokenizer or template delays only the same
work for its own model. The next job is from the client whose last one began longest ago, and no client holds all
threads. A job that can't begin in time is refused with `BusyError`.
"""

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ...protocol.errors import BusyError, ClosedError
from ...records import dataclass
from ..media.places import LONG_PLACES, SHORT_PLACES

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")

# A thread without work ends after this time.
_IDLE_SECONDS = 10.0
# Requests with slow media that may wait for other slow ones.
_WAITING_MEDIA = 3
_CLOSED = "The model was closed while the request waited."


class _Job(NamedTuple):
    future: "Future[Any]"
    work: Callable[..., Any]
    arguments: tuple[Any, ...]


class Threads:
    """A pool for one kind of work."""

    def __init__(
        self, jobs: str, count: int, *, most_of_client: int = 0, most_waiting: int = 4096, patience: float = 30.0
    ) -> None:
        self.jobs = jobs  # in the plural, for messages to clients
        self.count = count
        self.most_of_client = most_of_client or max(1, count - 1)  # at the same time
        self.most_waiting = most_waiting  # at most half of them from one client
        self.patience = patience  # seconds until a waiting job is refused
        self._changed = threading.Condition()
        self._waiting: dict[Hashable, deque[_Job]] = {}  # by client, in the order of their turns
        self._running: Counter[Hashable] = Counter()
        self._begun: set[Future[Any]] = set()
        self._is_closed = False
        self._num_waiting = self._num_threads = self._num_idle = 0

    async def run(self, work: Callable[..., Result], *arguments: Any, client: Hashable = None) -> Result:
        """Run a job in one of the threads. If cancelled before it has begun, it never runs."""
        import asyncio  # only callers in an event loop get here, and they have it

        future = self.submit(work, *arguments, client=client)
        overdue = asyncio.get_running_loop().call_later(self.patience, future.cancel)  # has no effect once it has begun
        awaited = asyncio.wrap_future(future)
        # If the call is cancelled just as its job fails, nobody retrieves the error.
        awaited.add_done_callback(lambda _: awaited.cancelled() or awaited.exception())
        try:
            return await awaited
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise BusyError(
                f"{self.jobs} of others have taken more than {self.patience:g} s. Ask again later."
            ) from None
        finally:
            overdue.cancel()

    def submit(self, work: Callable[..., Result], *arguments: Any, client: Hashable = None) -> "Future[Result]":
        future: Future[Result] = Future()
        with self._changed:
            if self._is_closed:
                raise ClosedError(_CLOSED)
            own = len(self._waiting.get(client, ()))
            if self._num_waiting >= self.most_waiting or (client is not None and 2 * own >= self.most_waiting):
                raise BusyError(f"Too many {self.jobs.lower()} wait already. Ask again later.")
            self._waiting.setdefault(client, deque()).append(_Job(future, work, arguments))
            self._num_waiting += 1
            if self._num_waiting > self._num_idle and self._num_threads < self.count:
                self._num_threads += 1
                # A daemon thread: a job stuck in foreign code does not delay the end of the process.
                threading.Thread(target=self._run, name="penstock-jobs", daemon=True).start()
            self._changed.notify()
        future.add_done_callback(lambda _: self._forget(client, future))
        return future

    def close(self) -> None:
        """Fail all jobs; one that has begun continues, and its result is dropped."""
        with self._changed:
            self._is_closed = True
            told = [*self._begun, *(job.future for jobs in self._waiting.values() for job in jobs)]
            self._waiting.clear()
            self._num_waiting = 0
        for future in told:
            with suppress(InvalidStateError):  # it has ended, or was cancelled
                future.set_exception(ClosedError(_CLOSED))

    def _forget(self, client: Hashable, future: "Future[Any]") -> None:
        """Remove a cancelled job from the queue."""
        if future.cancelled():
            with self._changed:
                job = next((each for each in self._waiting.get(client, ()) if each.future is future), None)
                if job is not None:
                    self._take_out(client, job)

    def _take_out(self, client: Hashable, job: _Job) -> None:
        jobs = self._waiting[client]
        jobs.remove(job)
        self._num_waiting -= 1
        if not jobs:
            del self._waiting[client]

    # --- a thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (found := self._next()) is not None:
            client, job = found
            _do(job)
            with self._changed:
                self._begun.discard(job.future)
                self._running[client] -= 1
                if not self._running[client]:
                    del self._running[client]
                self._changed.notify()
            del found, job  # free their memory while the thread waits

    def _next(self) -> tuple[Hashable, _Job] | None:
        with self._changed:
            self._num_idle += 1
            found = self._changed.wait_for(self._next_client, _IDLE_SECONDS)
            self._num_idle -= 1
            if found is None:
                self._num_threads -= 1
                return None
            [client] = found
            job = self._waiting[client][0]
            self._take_out(client, job)
            if client in self._waiting:  # its next turn comes after the others'
                self._waiting[client] = self._waiting.pop(client)
            job.future.set_running_or_notify_cancel()
            self._running[client] += 1
            self._begun.add(job.future)
            return client, job

    def _next_client(self) -> tuple[Hashable] | None:
        most = self.most_of_client
        return next(((each,) for each in self._waiting if each is None or self._running[each] < most), None)


def _do(job: _Job) -> None:
    with suppress(InvalidStateError):  # nobody waits for it any more
        if job.future.cancelled():  # just when its turn came
            return
        try:
            result = job.work(*job.arguments)
        except BaseException as error:
            job.future.set_exception(error)
        else:
            job.future.set_result(result)


async def in_own_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run a one-time job, such as closing, in a thread of its own."""
    return await Threads("Ends", 1).run(work, *arguments)


Item = TypeVar("Item")


class LoopQueue(Generic[Item]):
    """Items from other threads: `take` is called in the loop, with all items that have arrived together, in order."""

    def __init__(self, loop: "asyncio.AbstractEventLoop", take: Callable[[Item], object]) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[Item] = deque()
        self._is_called = False

    def put(self, item: Item) -> None:
        """Add an item from any thread; has no effect once the loop has ended."""
        self._items.append(item)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._take_all)

    def _take_all(self) -> None:
        self._is_called = False  # before looking, so that later items cause another call
        while self._items:
            self._take(self._items.popleft())


def request_template_threads() -> Threads:
    """A pool for templates sent with requests. It has several threads, so that one endless template doesn't block
    the others."""
    return Threads("Chat templates", 8)


def media_threads() -> Threads:
    """Threads that wait for media decoded in other processes; slow ones use additional threads beyond those for the
    others. Their decoded media stay in memory meanwhile, so there are few."""
    at_once = SHORT_PLACES + LONG_PLACES
    return Threads("Pictures", at_once + _WAITING_MEDIA, most_of_client=SHORT_PLACES - 1, patience=120.0)


@dataclass(slots=True)
class ModelThreads:
    """The pools of one model."""

    templates: Threads = field(default_factory=lambda: Threads("Conversations", 2))
    texts: Threads = field(default_factory=lambda: Threads("Texts", 2, most_waiting=2**16))  # to be tokenized
    media: Threads = field(default_factory=media_threads)
    # Long answers are formatted here; a computed answer is never refused, so it waits without limit.
    answers: Threads = field(default_factory=lambda: Threads("Answers", 2, patience=math.inf))
    adapters: Threads = field(default_factory=lambda: Threads("Questions about adapters", 2, most_waiting=64))
    # For clients' templates. The daemon has one pool for all of its models.
    request_templates: Threads = field(default_factory=request_template_threads)

    def close(self) -> None:
        """Close the model's own threads; their waiting jobs fail."""
        for threads in (self.templates, self.texts, self.media, self.answers, self.adapters):
            threads.close()
