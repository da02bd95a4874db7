"""`penstock batch --ray`: has a cluster's actors answer what is left of a job, in shards.

The journal stays with the command, and the output is made from it as ever. Records of the actors are appended as they
come. What a lost actor had not sent goes to another one, half-done answers with what they have said. An answer depends
on its row alone, so the output has the bytes that one machine would have written.
"""

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from ..frontend.jobs.head import differences
from ..frontend.jobs.job import Job, JobFacts
from ..frontend.jobs.job_input import InputLine
from ..frontend.jobs.journal.records import Answered, Pattern, Progressed, Record, unpacked
from ..protocol.errors import ConfigError, EngineDeadError, PenstockError
from .placement import Placement, check_numbers, checked_config
from .shards import SHARDS_AT_ONCE, Shard, ShardWorker

# Rows of a shard: enough that a tree's rows are full most of the time, few enough that a lost node costs little.
_SHARD_ROWS = 256
_REACH_SECONDS = 10.0
_PAUSE_SECONDS = 1.0  # before a lost worker is asked again
_SILENT_SECONDS = 15.0  # a worker that computes has something to say every second, unless its rows wait for others
_MOST_LOSSES = 3  # of each worker's shards, one after another, without any answer between them


class ShardedRun:
    """Answers what is left of a job with a cluster's actors."""

    def __init__(
        self,
        job: Job,
        model: str,
        options: Mapping[str, Any],
        placement: Placement,
        on_answer: Callable[[Answered], None],
    ) -> None:
        self._job, self._on_answer = job, on_answer
        arguments = model, placement.options(options), job.options, job.input_digest, job.commit_seconds
        make = placement.actor(ShardWorker, max_concurrency=SHARDS_AT_ONCE + 1)
        self._workers = [make.remote(*arguments) for _ in range(placement.num_replicas)]
        self._facts: JobFacts | None = None  # of all models, as they must be the same
        self._rows: Iterator[InputLine] = iter(())
        self._lost_rows: deque[list[InputLine]] = deque()
        self._idle: list[Any] = []  # workers, one for each shard that they could take
        self._running: dict[Any, RunningShard] = {}  # by the generator of its records
        self._loading: dict[Any, Any] = {}  # worker by the reference to its facts
        self._lost_workers: dict[Any, float] = {}  # and when to ask each again
        self._num_losses = 0
        self._began = self._committed = time.monotonic()

    def run(self) -> None:
        try:
            for worker in self._workers:
                self._loading[worker.facts.remote()] = worker
            while self._running or self._loading or self._lost_workers:
                if self._facts is not None and not self._is_left:
                    break  # what still loads, or has been asked twice, isn't needed
                self._take()
        finally:
            for worker in self._workers:
                with suppress(Exception):
                    ray.kill(worker)
        self._commit()
        self._job.check_complete()

    @property
    def _is_left(self) -> bool:
        return bool(self._lost_rows) or self._job.state.num_done < self._job.num_rows

    def _take(self) -> None:
        """Take what has come, and commit now and then, also if nothing has."""
        for worker in [each for each, due in self._lost_workers.items() if due <= time.monotonic()]:
            del self._lost_workers[worker]
            self._loading[worker.facts.remote()] = worker
        waited = [*self._running, *self._loading]
        if not waited:
            time.sleep(_PAUSE_SECONDS / 10)
            return
        ready, _ = ray.wait(waited, num_returns=1, timeout=min(self._job.commit_seconds, _PAUSE_SECONDS))
        for reference in ready:
            if reference in self._loading:
                self._loaded(self._loading.pop(reference), reference)
            else:
                self._heard(reference, self._running[reference])
        if self._facts is not None and time.monotonic() >= self._committed + self._job.commit_seconds:
            self._commit()
            self._ask_again()

    def _commit(self) -> None:
        self._committed = time.monotonic()
        running = sum(len(shard.lines) for shard in self._running.values())
        self._job.append(Progressed(self._committed - self._began, running, 0))
        self._job.journal.commit()

    def _loaded(self, worker: Any, reference: Any) -> None:
        """A worker has its model: begin the job with the first one, and give each what it can take."""
        try:
            facts: JobFacts = ray.get(reference)
        except RayTaskError as error:
            raise _cause(error) from error
        except RayError as error:
            if not isinstance(error, ActorUnavailableError):  # as it is for as long as Ray doesn't know of its end
                self._count_loss(error)
            self._ask_later(worker)
            return
        if self._facts is None:
            self._facts = facts
            self._job.begin_with(facts)
            self._rows = self._job.lines_left()
        elif phrases := differences(self._facts.facts, facts.facts):
            raise ConfigError(
                f"The cluster's nodes would give different answers: {'; '.join(phrases)}. Use nodes of one kind, or "
                "--deterministic portable."
            )
        self._idle += [worker] * SHARDS_AT_ONCE
        self._give()

    def _ask_later(self, worker: Any) -> None:
        """Ask a lost worker for its facts in a while: Ray starts it again, elsewhere if its node is gone."""
        if worker not in self._lost_workers and worker not in self._loading.values():
            self._lost_workers[worker] = time.monotonic() + _PAUSE_SECONDS

    def _give(self) -> None:
        """Give idle workers what is left: lost rows first."""
        while self._idle and (lines := self._next_rows()):
            worker, state = self._idle.pop(), self._job.state
            said = {line.row: state.said[line.row] for line in lines if line.row in state.said}
            deaths = {line.row: state.deaths[line.row] for line in lines if line.row in state.deaths}
            shard = Shard(lines, said, deaths, state.cause, state.pattern)
            self._running[worker.answer.remote(shard)] = RunningShard(worker, lines, shard.pattern)

    def _ask_again(self) -> None:
        """Let idle workers compute what a silent one has: it may hang, and it is all the same who answers."""
        due = time.monotonic() - _SILENT_SECONDS
        for shard in [each for each in self._running.values() if each.heard < due and not each.is_asked_again]:
            others = [worker for worker in self._idle if worker is not shard.worker]
            if others:
                shard.is_asked_again = True
                self._lost_rows.append(shard.lines)
                self._give()

    def _next_rows(self) -> list[InputLine]:
        while self._lost_rows:
            if lines := [line for line in self._lost_rows.popleft() if line.row not in self._job.state.done]:
                return lines
        return list(islice(self._rows, _SHARD_ROWS))

    def _heard(self, answers: Any, shard: "RunningShard") -> None:
        """Take a shard's next records, or its end."""
        try:
            for content in ray.get(next(answers)):
                self._append(unpacked(content), shard)
            shard.heard = time.monotonic()
            return
        except StopIteration:
            self._idle.append(shard.worker)
        except RayTaskError as error:
            if not isinstance(cause := _cause(error), EngineDeadError):
                raise cause from error
            self._lose(shard, cause)
            self._idle.append(shard.worker)  # it starts a new tree
        except RayError as error:  # the worker is gone, or its node, or the memory that it needed
            self._lose(shard, error)
            self._idle = [worker for worker in self._idle if worker is not shard.worker]
            self._ask_later(shard.worker)
        del self._running[answers]
        self._give()

    def _append(self, record: Record, shard: "RunningShard") -> None:
        if isinstance(record, Pattern):
            shard.pattern = record.content
        elif isinstance(record, Answered):
            if record.row in self._job.state.done:  # a lost worker had sent it, after all
                return
            if record.receipt and self._job.state.pattern != shard.pattern:  # its receipt is packed with its own
                self._job.append(Pattern(shard.pattern))
            self._num_losses = 0
            self._on_answer(record)
        self._job.append(record)

    def _lose(self, shard: "RunningShard", error: BaseException) -> None:
        self._count_loss(error)
        self._lost_rows.append(shard.lines)

    def _count_loss(self, error: BaseException) -> None:
        self._num_losses += 1
        if self._num_losses > _MOST_LOSSES * len(self._workers) * SHARDS_AT_ONCE:
            raise EngineDeadError(f"The cluster's workers die again and again: {error}")


@dataclass
class RunningShard:
    worker: Any
    lines: list[InputLine]
    pattern: bytes  # that its next receipts are packed with
    heard: float = field(default_factory=time.monotonic)  # the last time
    is_asked_again: bool = False  # others have its rows, too


def _cause(error: RayTaskError) -> PenstockError:
    cause = error.cause
    return cause if isinstance(cause, PenstockError) else EngineDeadError(f"A worker of the cluster failed: {error}")


def answer_on_ray(
    job: Job,
    address: str,
    model: str,
    options: Mapping[str, Any],
    *,
    num_replicas: int | None,
    num_cpus: float | None,
    on_answer: Callable[[Answered], None],
) -> None:
    """Answer what is left of a job on the cluster at this address."""
    check_numbers(num_replicas, num_cpus)
    config = checked_config(model, options)
    _require_listener(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"--ray {address}: there is no Ray cluster ({error}). `ray start --head` starts one."
        ) from error
    try:
        ShardedRun(job, model, options, Placement.of(config, num_replicas, num_cpus), on_answer).run()
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Refuse an address where nobody listens: Ray would try for a minute, and not say what."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():  # auto, or what Ray refuses itself
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--ray {address}: nobody answers there ({error}). `ray start --head` starts a cluster and names it."
        ) from error
