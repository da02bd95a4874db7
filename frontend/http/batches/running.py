"""Answers one batch: its job in a thread, with a lease of the model, and again after what passes.

The journal has what is done, so an attempt may end at any time, and the next one continues.
"""

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress

from ....protocol.errors import (
    BusyError,
    ClosedError,
    ConfigError,
    EngineDeadError,
    OutOfMemoryError,
    PenstockError,
)
from ...jobs.head import ChangedFactsError
from ...jobs.job import Job, JobOptions
from ...jobs.journal.journal import JournalInUseError
from ...jobs.journal.records import JobState
from ...session.threads import in_own_thread
from ..answers.errors import ApiError, as_api_error, log
from ..files.store import FileStore
from ..models import ModelNotServedError, Models
from ..options import HttpOptions
from ..requests.request_parts import COMPLETION_TOKENS
from ..schemas.files import BatchUsage
from .record import BatchFolder, BatchRecord, usage_of
from .rules import BatchSession

# One slot of the engine in four, and at least one, is left to people.
_KEPT = 4
# Attempts without any answer that end a batch. A line that kills the model is found by three of them.
_MOST_FRUITLESS = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_LOOK_SECONDS = 1.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PASSING = (OutOfMemoryError, BusyError, ClosedError, ModelNotServedError, JournalInUseError)


class BatchFailed(Exception):
    """The batch can't be answered; its message is for its owner."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Stopped(Exception):
    """The thread has been told to end."""


class _GivesWay(Exception):
    """Somebody waits for another model, which needs the memory of this one."""


class RunningBatch:
    """`run` returns when all rows are answered; cancelling it ends the attempt at a clean place."""

    def __init__(
        self,
        record: BatchRecord,
        folder: BatchFolder,
        models: Models,
        options: HttpOptions,
        share: Callable[["RunningBatch", int], int],
        store: FileStore,
    ) -> None:
        """`share` returns how many of some rows are this batch's; its journal counts in the store."""
        self.record = record
        self._folder = folder
        self._models = models
        self._options = options
        self._share = share
        self._store = store
        self.tree: object = None  # the model's processes, which other batches may use, too
        self._num_done = self._num_failed = 0  # at the end of an attempt
        self._usage: BatchUsage | None = None  # likewise
        self._state: JobState | None = None  # of the attempt that runs

    def count(self) -> tuple[int, int]:
        """Rows that are done, and of these the failed ones."""
        if self._state is not None:
            self._num_done, self._num_failed = self._state.num_done, self._state.num_failed
            self._usage = usage_of(self._state)
        return self._num_done, self._num_failed

    def show_count(self) -> None:
        """Put it into the description, unless more is known there from an earlier run."""
        counts, (num_done, num_failed) = self.record.shown.request_counts, self.count()
        if num_done >= counts.completed + counts.failed:
            counts.completed, counts.failed = num_done - num_failed, num_failed
            self.record.shown.usage = self._usage or self.record.shown.usage

    async def run(self) -> None:
        num_fruitless, pause = 0, _FIRST_PAUSE
        while True:
            num_done, _ = self.count()
            try:
                if await self._attempt():
                    return
            except _GivesWay:
                pause = _LONGEST_PAUSE
            except BatchFailed:
                raise
            except Exception as error:
                if not isinstance(error, PenstockError):
                    log.error("a batch has met a fault of the server", exc_info=error)
                has_progress = self.count()[0] > num_done
                pause = _FIRST_PAUSE if has_progress else min(2 * pause, _LONGEST_PAUSE)
                num_fruitless = 0 if has_progress or _passes(error) else num_fruitless + 1
                if (isinstance(error, ConfigError) and not _passes(error)) or num_fruitless >= _MOST_FRUITLESS:
                    raise _failure(error) from error
            await asyncio.sleep(pause)

    async def _attempt(self) -> bool:
        """Returns whether all rows are answered."""
        async with self._models.lease(self.record.shown.model) as model:
            plan = model.session.door.plan
            num_rows = model.session.tree_config.step_limits(plan.device)[0]
            most = max(1, num_rows - max(1, num_rows // _KEPT))
            session = BatchSession(model, self._options, self.record.owner, lambda: self._share(self, most))
            is_stopped, self.tree = threading.Event(), model.session.transport
            work = asyncio.ensure_future(in_own_thread(self._work, session, is_stopped))
            try:
                while not work.done():
                    await asyncio.wait([work], timeout=_LOOK_SECONDS)
                    if self._models.is_short_of_memory and not work.done():
                        raise _GivesWay
                    self._check_quota()
                return work.result()
            finally:
                is_stopped.set()
                while not work.done():  # the model is leased, and the journal is its own, until then
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([work])
                work.exception()
                self.tree = None

    def _check_quota(self) -> None:
        """Count the journal; raises if its owner's files take too much."""
        owner = self.record.owner
        self._store.count_journal(self.record.shown.id, owner, self._folder.journal_bytes())
        try:
            self._store.check_quota(owner)
        except ApiError as error:
            raise BatchFailed(str(error.code), f"The answers so far are kept, the rest isn't asked: {error}") from error

    def _work(self, session: BatchSession, is_stopped: threading.Event) -> bool:
        def check() -> None:
            if is_stopped.is_set():
                raise _Stopped
            session.transport.check()  # a new tree has another session, which knows how to render and decode

        shown = self.record.shown
        sampling = {"max_tokens": COMPLETION_TOKENS} if shown.endpoint == "/v1/completions" else {}
        options = JobOptions(sampling, seed=session.config.seed, model=shown.model or "", limits_answers=False)
        with Job(self._folder.input, self._folder.output, options) as job:
            self._state = job.state
            try:
                if job.is_left:
                    job.begin(session)
                    job.run(session, lambda row, output: None, check)
                else:
                    job.compare(session)
                return not job.is_left
            finally:
                self.count()
                self._state = None


def _passes(error: Exception) -> bool:
    """Whether it is worth waiting: for memory, for room on the disk, for a model that is served again, or for the last
    thread of an earlier server."""
    cause = error.__cause__
    is_full = isinstance(cause, OSError) and cause.errno in _FULL
    return is_full or isinstance(error, _PASSING)


def _failure(error: Exception) -> BatchFailed:
    if isinstance(error, ChangedFactsError):
        changes = "; ".join(error.phrases)
        sentence = f"The model is another one than when the batch began, whose answers are kept: {changes}."
        return BatchFailed("model_changed", f"{sentence} Ask what is left in a new batch.")
    if isinstance(error, EngineDeadError):
        return BatchFailed("model_died", "The model's processes have died again and again while they answered it.")
    return BatchFailed("server_error", str(as_api_error(error)))
