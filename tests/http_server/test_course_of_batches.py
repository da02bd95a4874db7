"""Batches over HTTP in the course of time: cancelled, expired, interrupted by a restart, waiting for what passes."""

import asyncio
import errno
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.batch_input import CHATS, MULTIPART, form, line
from builders.served import running_model
from builders.watching import wait_until

from penstock import SamplingParams
from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.batches import running
from penstock.frontend.http.batches.record import BatchFolder
from penstock.frontend.http.batches.schedule import Schedule
from penstock.frontend.http.batches.service import Batches
from penstock.frontend.http.files.store import LIFE_SECONDS, counted
from penstock.frontend.http.one_model import OneModel
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.http.requests.guard import owners
from penstock.frontend.http.schemas.files import FileQuery, NewBatch
from penstock.frontend.jobs import job
from penstock.frontend.jobs.job import Job, JobOptions
from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.journal.journal import Journal

BOUND = 120.0


@pytest.fixture(scope="module")
def slow() -> Iterator[tuple]:
    """One slot, and steps that take their time."""
    options = {"load_format": "stand-in", "max_model_len": 512, "num_gpu_blocks_override": 64, "max_num_seqs": 1}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")
        with running_model("pocket", **options) as model:
            yield model


class Course:
    """A service without a server, in the model's loop, whose clock the test sets."""

    def __init__(self, model: tuple, folder: Path, **options: Any) -> None:
        self.llm, self.loop = model
        self.folder, self.options, self.now = folder, HttpOptions(**options), time.time()
        self.service = self.run(self._open)

    def run(self, work: Callable[[], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(BOUND)

    async def _open(self) -> Batches:
        service = Batches(OneModel(self.llm, "pocket"), self.options, self.folder, clock=lambda: self.now)
        await service.start()
        return service

    def restart(self) -> None:
        self.run(self.service.close)
        self.service = self.run(self._open)

    def begin(self, content: str, owner: str = "") -> str:
        async def work() -> str:
            upload = await self.service.upload(owner)
            parts = [{"type": "http.request", "body": form(content.encode()), "more_body": False}]
            await upload.read({"headers": [(b"content-type", MULTIPART.encode())]}, lambda: _next(parts))
            file = await upload.keep()
            await upload.close()
            new = NewBatch(input_file_id=file.id, endpoint=CHATS, completion_window="1h")
            return (await self.service.create(owner, new)).id

        return self.run(work)

    def batch(self, batch_id: str, owner: str = "") -> Any:
        return self.run(lambda: self.service.batch(owner, batch_id))

    def until(self, batch_id: str, *statuses: str, least: int = 0, owner: str = "") -> Any:
        def holds() -> bool:
            found = self.batch(batch_id, owner)
            return found.status in statuses and found.request_counts.completed >= least

        wait_until(holds, f"{statuses}, {least} done", BOUND)
        return self.batch(batch_id, owner)

    def lines(self, file_id: str | None, owner: str = "") -> list[Any]:
        if file_id is None:
            return []
        _, pieces = self.run(lambda: self.service.content(owner, file_id))
        return [json.loads(each) for each in b"".join(pieces).splitlines()]


async def _next(parts: list) -> Any:
    return parts.pop(0)


@pytest.fixture
def course(slow, tmp_path) -> Iterator[Callable[..., Course]]:
    made: list[Course] = []

    def course(**options: Any) -> Course:
        made.append(Course(slow, tmp_path / str(len(made)), **options))
        return made[-1]

    yield course
    for each in made:
        each.run(each.service.close)


LONG = "\n".join(line(f"r{n}", max_tokens=20) for n in range(200))


def test_a_batch_that_is_cancelled_or_expires_keeps_its_answers_and_says_what_has_none(course):
    found = course()
    batch_id = found.begin(LONG)
    found.until(batch_id, "in_progress", least=1)
    assert found.run(lambda: found.service.cancel("", batch_id)).status == "cancelling"
    batch = found.until(batch_id, "cancelled")
    assert 0 < len(found.lines(batch.output_file_id)) == batch.request_counts.completed < 200
    assert batch.error_file_id is None
    with pytest.raises(ApiError, match="no file"):
        found.run(lambda: found.service.file("another", batch.output_file_id))
    late = found.begin(LONG)
    found.until(late, "in_progress", least=1)
    found.restart()
    found.now += 3601.0
    found.restart()
    batch = found.until(late, "expired")
    answers, errors = found.lines(batch.output_file_id), found.lines(batch.error_file_id)
    assert answers and len(answers) + len(errors) == 200 and errors[0]["error"]["code"] == "batch_expired"
    wait_until(lambda: not list(found.folder.rglob("*put.jsonl*")), "nothing of the job is left", BOUND)


def test_a_batch_goes_on_after_a_restart_and_a_request_of_a_person_goes_before_it(course, slow):
    short = "\n".join(line(f"r{n}", max_tokens=20) for n in range(8))
    found = course()
    whole = found.lines(found.until(found.begin(short), "completed").output_file_id)
    again = found.begin(short)
    found.until(again, "in_progress", least=1)
    found.restart()
    assert found.batch(again).request_counts.completed >= 1
    assert found.lines(found.until(again, "completed").output_file_id) == whole
    long = found.begin(LONG)
    found.until(long, "in_progress", least=1)
    llm, _ = slow
    [answer] = found.run(lambda: llm.generate([5, 6], SamplingParams(max_tokens=2)))
    assert answer.finished and found.batch(long).status == "in_progress"


def test_a_batch_whose_answers_are_all_there_is_compared_with_the_model_as_any_job_is(course, monkeypatch):
    found = course()
    with monkeypatch.context() as crash:
        crash.setattr(Schedule, "_finish", _interrupted)
        batch_id = found.begin("\n".join(line(f"r{n}") for n in range(3)))
        found.until(batch_id, "in_progress", least=3)
        found.run(found.service.close)
    facts_of_model = job.facts_of_model
    monkeypatch.setattr(job, "facts_of_model", lambda session: {**facts_of_model(session), "weights": "others"})
    found.restart()
    batch = found.until(batch_id, "failed")
    [fault] = batch.errors.data
    assert fault.code == "model_changed" and "weights changed from " in fault.message and "to others" in fault.message
    assert len(found.lines(batch.output_file_id)) == 3


async def _interrupted(*arguments: Any) -> None:
    raise OSError("the server dies here")


def test_batches_of_a_key_that_is_gone_wait_until_it_is_back(course, tmp_path):
    (tmp_path / "keys").write_text("first\nsecond\n")
    found = course(api_key_file=str(tmp_path / "keys"))
    [first, second] = sorted(owners(found.options))
    batches = {owner: found.begin(LONG, owner) for owner in (first, second)}
    for owner, batch_id in batches.items():  # side by side
        found.until(batch_id, "in_progress", least=1, owner=owner)
    models = found.service._models

    async def change(options: HttpOptions) -> None:
        found.service.change(models, options)

    (tmp_path / "fewer").write_text("first\n")
    fewer = HttpOptions(api_key_file=str(tmp_path / "fewer"))
    [kept] = owners(fewer)
    gone = second if kept == first else first
    found.run(lambda: change(fewer))
    schedule = found.service._schedule
    wait_until(lambda: set(schedule._running) == {batches[kept]}, "one has stopped", BOUND)
    found.run(lambda: change(found.options))
    wait_until(lambda: len(schedule._running) == 2, "it goes on", BOUND)
    assert found.batch(batches[gone], gone).status == "in_progress"


def test_the_input_of_a_batch_counts_until_the_batch_ends_though_its_file_is_deleted(course):
    found = course()
    batch_id = found.begin(LONG)
    file_id = found.batch(batch_id).input_file_id
    found.run(lambda: found.service.delete_file("", file_id))
    assert counted_without_journals(found) == counted(len(LONG))
    found.until(batch_id, "in_progress", least=1)
    found.restart()
    assert counted_without_journals(found) == counted(len(LONG)) < found.service._store.used[""]
    found.run(lambda: found.service.cancel("", batch_id))
    found.until(batch_id, "cancelled")
    files, _ = found.run(lambda: found.service.files("", FileQuery()))
    assert found.service._store.used[""] == sum(counted(file.bytes) for file in files)


def counted_without_journals(found: Course) -> int:
    store = found.service._store
    return store.used[""] - sum(store._journals.values())


def test_a_batch_whose_answers_take_more_than_its_owner_may_keep_ends_with_those_that_it_has(course):
    found = course(max_stored_bytes=counted(len(LONG)) + 2000)
    batch = found.until(batch_id := found.begin(LONG), "failed")
    [fault] = batch.errors.data
    assert fault.code == "storage_quota_exceeded" and "max_stored_bytes" in fault.message
    assert 0 < len(found.lines(batch.output_file_id)) == batch.request_counts.completed < 200
    wait_until(lambda: not list((found.folder / "batches" / batch_id).glob("*put*")), "the journal is removed", BOUND)
    assert counted_without_journals(found) == found.service._store.used[""]
    with pytest.raises(ApiError, match="journal of its answers"):
        found.begin(LONG)


def test_a_batch_that_cannot_be_kept_leaves_nothing_counted_but_its_file(course, monkeypatch):
    found = course()
    monkeypatch.setattr(BatchFolder, "begin", _refused)
    with pytest.raises(ApiError, match="can't be kept: the disk is full"):
        found.begin(LONG)
    [file] = found.run(lambda: found.service.files("", FileQuery()))[0]
    assert found.service._store.used[""] == counted(len(LONG))
    found.run(lambda: found.service.delete_file("", file.id))
    assert found.service._store.used[""] == 0


def _refused(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, "the disk is full")


def test_a_batch_that_cannot_end_is_removed_with_its_journal_when_its_time_is_long_over(course, monkeypatch):
    found = course()
    monkeypatch.setattr(Schedule, "_finish", _interrupted)
    batch_id = found.begin(LONG)
    found.until(batch_id, "in_progress", least=1)
    found.run(found.service.close)
    found.now += 3601.0 + LIFE_SECONDS
    found.restart()
    wait_until(lambda: not list((found.folder / "batches").iterdir()), "its folder is removed", BOUND)
    assert found.service._store.used[""] == 0 and not found.service.has_unfinished


def test_a_batch_waits_for_the_journal_that_an_earlier_server_still_has(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_FIRST_PAUSE", 0.0)
    folder, attempts = BatchFolder(tmp_path), []
    folder.input.write_text('"one"\n')
    earlier = Journal.open(JobFiles.of(folder.output).journal)
    batch = running.RunningBatch(None, folder, None, None, None, None)

    async def attempt() -> bool:
        attempts.append(1)
        if len(attempts) > running._MOST_FRUITLESS:
            earlier.close()
        with Job(folder.input, folder.output, JobOptions()):
            return True

    monkeypatch.setattr(batch, "_attempt", attempt)
    asyncio.run(batch.run())
    assert len(attempts) == running._MOST_FRUITLESS + 1
