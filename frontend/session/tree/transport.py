"""Submits requests to a tree and passes its deltas to the waiting requests.

One thread reads all of the tree's messages, so any number of the caller's threads and event loops may wait. When a
process of the tree dies, the thread ends the rest, and every request fails with the cause or goes to the tree's heir.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from ....protocol.adapter_messages import LoraAnswer
from ....protocol.errors import ClosedError, EngineDeadError, PenstockError, same_error
from ....protocol.memory_plan import MemoryPlan
from ....protocol.messages import Abort, Deltas, FrontendInbox, Generate, Prompt, Started, request_and_sample
from ....protocol.options.config import EngineConfig
from ....protocol.stats import Stats, StatsQuery
from ...models.model_files import ModelFiles
from ...requests.pending_request import PendingRequest
from ..engine_transport import EngineTransport, Heir
from .tree import Tree
from .tree_watch import TreeWatch
from .watchdog import Watchdog

# Sequences in one message to the engine, which handles other messages and its workers in between.
_GROUP = 64


class TreeTransport(EngineTransport):
    """The transport to one private tree, which it owns: it starts with the constructor and ends with `close()`."""

    def __init__(
        self, config: EngineConfig, files: ModelFiles, shown: Sequence[str] = (), tree: Tree | None = None
    ) -> None:
        """If answers are parsed, the marks `shown` stay in their text, even if they are special tokens. A tree that
        was started before for this config is taken over."""
        super().__init__()
        self.tree = tree or Tree(config)
        try:
            form = None if files.pooled is None else files.pooled.form
            self.tree.launch(config, files.folder, files.tokenizer_folder, shown, files.draft_folder, form)
            self._wake_read, self._wake_write = os.pipe()
        except BaseException:
            self.tree.close()
            raise
        self._queries = itertools.count(1)
        self._stats: dict[int, Future[Stats]] = {}
        self._num_waiting = 0  # callers waiting for other answers of the tree
        self.on_lora_answer: Callable[[LoraAnswer], None] = lambda answer: None
        self._thread = threading.Thread(target=self._receive, name="penstock-client", daemon=True)
        try:
            self._watch = TreeWatch(self.tree, config.watchdog_timeout)
            self._watchdog = Watchdog(config.watchdog_timeout, self._is_waited_for, self._watch.begin, self._look)
            self._watchdog.wake()
        except BaseException:
            self.tree.close()
            self._close_ends()
            raise

    def wait_until_ready(self) -> MemoryPlan:
        try:
            self.plan = self.tree.wait_until_ready()
            self._thread.start()
        except BaseException:
            self.close()
            raise
        return self.plan

    @property
    def is_ready(self) -> bool:
        return self.tree.is_ready

    def terminate(self) -> None:
        self.tree.terminate()

    def reached(self, stage: str) -> None:
        self.tree.trace.reached(stage)

    def submit(self, requests: Sequence[PendingRequest]) -> None:
        if (heir := self._checked_successor()) is not None:
            heir.submit(self, requests)
            return
        if self.heir is not None:
            self.heir.prepare(requests)
        self._begin(requests)
        for prompts in _groups(request.prompt for request in requests):
            self.tree.engine.send(Generate(prompts))
        self._drop_media(requests)
        self._watchdog.wake()
        if self.error is not None or self.is_closed:
            self._fail_all(self.error or ClosedError(self.closed_meanwhile))

    def _drop_media(self, requests: Sequence[PendingRequest]) -> None:
        """Drop the media that the engine has been sent, except those of requests that an heir has taken meanwhile."""
        with self._lock:
            for request in requests:
                if request.request_id in self._pending:
                    request.prompt.media, request.prompt.positions = [], b""

    @property
    def _successor(self) -> Heir | None:
        """Who has the requests, if this tree has died."""
        return self.heir if self.error is not None else None

    def _checked_successor(self) -> Heir | None:
        """Who has the requests, if this tree has died; raises if it can't be used for another reason."""
        try:
            self.check()
        except PenstockError:
            if self._successor is None:
                raise
        return self._successor

    def abort(self, requests: Iterable[PendingRequest]) -> None:
        requests = list(requests)
        forgotten = self._forget(request.request_id for request in requests)
        if (heir := self._successor) is not None:
            heir.abort(self, requests)
        elif self.error is None and not self.is_closed:
            self._end([sequence for request in forgotten for sequence in request.sequence_ids])

    def cancel(self, requests: Iterable[PendingRequest]) -> None:
        requests = list(requests)
        for request in requests:
            request.is_cancelled = True  # first of all: the tree may die before it has ended them
        if (heir := self._checked_successor()) is not None:
            heir.cancel(self, requests)
            return
        self._end([sequence for request in requests for sequence in request.sequence_ids])

    def end_samples(self, requests: Iterable[PendingRequest]) -> None:
        for request in requests:
            samples = zip(request.sequence_ids, request.progress, strict=True)
            self._end([sequence for sequence, progress in samples if progress.has_ended])

    def _end(self, sequence_ids: list[int]) -> None:
        for start in range(0, len(sequence_ids), _GROUP):
            self.tree.engine.send(Abort(sequence_ids[start : start + _GROUP]))

    def ask_stats(self, sequence_ids: Sequence[int] = ()) -> "Future[Stats]":
        self.check()
        query, answer = next(self._queries), Future[Stats]()
        answer.add_done_callback(lambda _: self._stats.pop(query, None))
        self._stats[query] = answer
        self.tree.engine.send(StatsQuery(query, list(sequence_ids)))
        self._watchdog.wake()
        if self.error is not None or self.is_closed:
            self._fail_all(self.error or ClosedError(self.closed_meanwhile))
        return answer

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this is open, the watchdog watches the tree: somebody waits for an answer that `_stats` doesn't
        list."""
        with self._lock:
            self._num_waiting += 1
        self._watchdog.wake()
        try:
            yield
        finally:
            with self._lock:
                self._num_waiting -= 1

    async def silent(self, seconds: float) -> list[str]:
        self.check()
        self._watchdog.wake()
        left = await self.tree.roll_call.silent(seconds, self._watch.is_stopped)
        self.check()
        return [role for role in left if not self._watch.is_computing(role, seconds)]

    def close(self) -> None:
        """End the tree; requests still running fail. Safe to call twice, and a no-op in a forked copy."""
        if self.is_closed or self.is_forked:
            return
        self.is_closed = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            os.write(self._wake_write, b"x")
            self._thread.join()
        self._watchdog.stop()
        self.tree.close()
        self.on_close()
        self._fail_all(ClosedError(self.closed_meanwhile))
        self._close_ends()

    def _close_ends(self) -> None:
        for end in (self._wake_read, self._wake_write):
            with suppress(OSError):
                os.close(end)

    # --- the watchdog's thread -----------------------------------------------------------------------------------

    def _is_waited_for(self) -> bool:
        if self.error is not None or self.is_closed or self.tree.hang is not None:
            return False
        awaited = self._pending or self._stats or self._num_waiting or not self.tree.roll_call.is_answered
        return bool(awaited) or not self.tree.is_ready

    def _look(self, seconds: float) -> None:
        if (error := self._watch.look(seconds)) is not None:
            self.tree.give_up(error)

    # --- the receiving thread ------------------------------------------------------------------------------------

    def _receive(self) -> None:
        watched = [self._wake_read, *(child.pidfd for child in self.tree.children)]
        try:
            while (message := self.tree.inbox.receive_or(watched)) is not None:
                self._dispatch(message)
            if not self.is_closed:
                self._die(self.tree.death(self._dispatch))
        except PenstockError as error:  # a child's own error
            self._die(error)
        except BaseException as error:  # whatever it is: nobody else would tell the waiting callers
            self._die(_broken(error))

    def _dispatch(self, message: FrontendInbox) -> None:
        if isinstance(message, Deltas):
            self._hand_out(message)
        elif isinstance(message, Stats):
            if (answer := self._stats.pop(message.query, None)) is not None and answer.set_running_or_notify_cancel():
                answer.set_result(message)
        elif isinstance(message, LoraAnswer):
            self.on_lora_answer(message)
        elif isinstance(message, Started):
            for request_id in message.request_ids:
                if (request := self._pending.get(request_id)) is not None:
                    request.has_started = True
        else:
            self.tree.note(message)

    def _hand_out(self, message: Deltas) -> None:
        notified: dict[int, PendingRequest] = {}
        for delta in message.deltas:
            request_id = request_and_sample(delta.sequence_id)[0]
            # Unknown: aborted by us while the delta was being sent.
            if (request := self._pending.get(request_id)) is not None:
                request.add(delta)
                notified[request_id] = request
                if request.is_finished:
                    self._finish(request)
                elif request.error is not None:  # drop it, even if its owner hasn't been notified yet
                    self.abort([request])
        for request in notified.values():
            request.tell()

    def _finish(self, request: PendingRequest) -> None:
        """Forget a request whose last delta has come."""
        self._pending.pop(request.request_id, None)

    def _die(self, error: PenstockError) -> None:
        self.error = error
        try:
            self.tree.close(ask=False)
        finally:
            self._fail_all(error)
            self.on_death(error)

    def _fail_all(self, error: PenstockError) -> None:
        """Fail everyone who waits for an answer or for statistics; requests of a tree that has died go to its heir."""
        for query in list(self._stats):
            if (answer := self._stats.pop(query, None)) is not None and answer.set_running_or_notify_cancel():
                answer.set_exception(same_error(error))
        if (heir := self._successor) is not None:
            heir.take_over(self, error)
        else:
            self._fail(list(self._pending), error)


def _groups(prompts: Iterable[Prompt]) -> Iterator[list[Prompt]]:
    """Groups of prompts in order, each with at most this many sequences, or one larger request."""
    group: list[Prompt] = []
    num_sequences = 0
    for prompt in prompts:
        if group and num_sequences + prompt.params.n > _GROUP:
            yield group
            group, num_sequences = [], 0
        group.append(prompt)
        num_sequences += prompt.params.n
    if group:
        yield group


def _broken(error: BaseException) -> EngineDeadError:
    broken = EngineDeadError(f"What the process tree said could not be taken in: {type(error).__name__}: {error}")
    broken.__cause__ = error
    return broken
