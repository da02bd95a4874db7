"""A part of a job, and the actor with a process tree that answers it and sends the journal's records back."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..frontend.jobs.job import JobFacts, JobOptions
from ..frontend.jobs.job_input import InputLine
from ..frontend.jobs.journal.records import JobState, Progressed, Record, packed
from ..frontend.jobs.run import JobRun
from ..frontend.replay.finder import AnswerFinder
from ..frontend.session import open_model
from ..frontend.session.session import Session
from ..protocol.messages import Said

SHARDS_AT_ONCE = 2  # of an actor: the next one begins while the last rows of one are computed
_RECORDS = 64  # that are sent together
_END = "end"


@dataclass(frozen=True)
class Shard:
    """Rows of a job, with what earlier runs know of them."""

    lines: list[InputLine]
    said: dict[int, list[Said]]
    deaths: dict[int, int]
    cause: str
    pattern: bytes


@dataclass
class ShardJob:
    """A shard as its run sees it: a job whose records go to whoever has the journal."""

    options: JobOptions
    input_digest: str
    commit_seconds: float
    shard: Shard
    put: Callable[[Record], None]
    state: JobState = field(default_factory=JobState)
    replay: AnswerFinder | None = None

    def __post_init__(self) -> None:
        shard = self.shard
        self.state.said, self.state.deaths, self.state.cause = dict(shard.said), dict(shard.deaths), shard.cause
        self.state.pattern = shard.pattern

    @property
    def num_rows(self) -> int:
        return len(self.shard.lines)

    @property
    def input(self) -> "ShardJob":
        return self

    @property
    def journal(self) -> "ShardJob":
        return self

    def lines(self) -> Iterator[InputLine]:
        return iter(self.shard.lines)

    def commit(self) -> None:
        """The command commits what has arrived."""

    def check_complete(self) -> None:
        """The command knows which rows are left."""

    def append(self, record: Record) -> None:
        self.state.take(record)
        if not isinstance(record, Progressed):
            self.put(record)


class ShardWorker:
    """An actor with a process tree, which answers shards."""

    def __init__(self, model: str, options: Mapping[str, Any], job: JobOptions, digest: str, commit_seconds: float):
        self._model, self._options = model, dict(options)
        self._job, self._digest, self._commit_seconds = job, digest, commit_seconds
        self._lock = threading.Lock()
        self._session: Session[Any] | None = None

    def facts(self) -> JobFacts:
        """The facts of its model, as the journal's head has them; loads the model."""
        return JobFacts.of(self._ready())

    def answer(self, shard: Shard) -> Iterator[list[bytes]]:
        """Answer the shard's rows; yields packed records as they come."""
        records: queue.SimpleQueue[Any] = queue.SimpleQueue()
        job = ShardJob(self._job, self._digest, self._commit_seconds, shard, records.put)
        session = self._ready()

        def run() -> None:
            try:
                JobRun(job, session).run()
                records.put(_END)
            except BaseException as error:
                records.put(error)

        threading.Thread(target=run, name="penstock-shard", daemon=True).start()
        while True:
            group = [records.get()]
            while len(group) < _RECORDS and not records.empty():
                group.append(records.get())
            end = None if isinstance(group[-1], Record) else group.pop()  # nothing comes behind it
            yield [packed(record) for record in group]
            if isinstance(end, BaseException):
                raise end
            if end is not None:
                return

    def _ready(self) -> Session[Any]:
        """The session of a tree that lives: a new one if the last has died."""
        with self._lock:
            if self._session is None or self._session.transport.error is not None:
                if self._session is not None:
                    self._session.transport.close()
                self._session = None
                session = open_model(self._model, {"quiet": True, **self._options, "connect": "never"})
                session.wait_until_ready()
                self._session = session
            return self._session
