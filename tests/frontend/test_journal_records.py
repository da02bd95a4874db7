"""A journal whose frames are whole may hold any records: it is read, or refused with the place of what is no job's."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import msgspec
import pytest
from builders.cases import for_each
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.frontend.jobs import job_files
from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.journal.checked_records import read_records
from penstock.frontend.jobs.journal.journal import frame
from penstock.frontend.jobs.journal.records import (
    Answered,
    Began,
    Continued,
    Died,
    Forgotten,
    Head,
    Progressed,
    packed,
)
from penstock.frontend.replay.finder import AnswerFinder
from penstock.frontend.verify.lines import from_file
from penstock.protocol.errors import ConfigError, PenstockError
from penstock.protocol.messages import Said

NUM_ROWS = 3
LINE = b'{"id": "a", "prompt": "a", "outputs": [{"text": "b", "token_ids": [1, 2]}]}\n'
HEAD, ANSWER = Head({}, NUM_ROWS), Answered(0, 1, 200, 1, 0, 2, LINE)
rows = st.one_of(st.integers(-2, NUM_ROWS + 1), st.sampled_from([-(2**63), 2**33, 2**40, 2**62, 2**64 - 1]))
counts = st.one_of(st.integers(0, 9), st.sampled_from([-5, 2**40, 2**64 - 1]))
contents = st.one_of(st.just(LINE), st.binary(max_size=9))
RECORDS = st.one_of(
    st.builds(Head, st.just({}), st.one_of(st.just(NUM_ROWS), rows)),
    st.builds(
        Answered, rows, counts, st.sampled_from([200, 400]), counts, counts, counts, contents,
        st.lists(st.binary(max_size=9), max_size=2), counts, counts, st.lists(counts, max_size=2),
        st.sampled_from([b"", b"\x00\x01garbage"]), st.booleans(),
    ),
    st.builds(Continued, rows, st.lists(st.builds(Said, st.just(b"1234")), max_size=3)),
    st.builds(Forgotten, st.lists(rows, max_size=3)),
    st.builds(Died, st.lists(rows, max_size=3), st.just("a cause")),
    st.builds(Began, st.booleans()),
    st.builds(Progressed, st.floats(), counts, counts, st.floats()),
).map(packed)  # fmt: skip
CONTENTS = st.one_of(RECORDS, st.binary(max_size=9), st.just(msgspec.msgpack.encode(["of a later version", 1])))


def readers(files: JobFiles) -> list[Callable[[], object]]:
    return [
        files.state,
        lambda: files.export(with_receipts=True),
        lambda: list(from_file(files.journal.open("rb"), str(files.journal))),
        lambda: AnswerFinder(files.journal).close(),
        lambda: AnswerFinder(files.output).close(),
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(CONTENTS, max_size=6), st.booleans())
@example([packed(Answered(2**40, 1, 200, 1, 0, 2, LINE))], True)
@example([packed(Continued(1, [Said(b"1234")] * each)) for each in (1, 2)], True)
@example([packed(Answered(0, 1, 200, 1, 0, 2, LINE, prompt_keys=[-5]))], True)
def test_whatever_the_records_of_a_journal_are_they_are_read_or_refused_in_a_sentence(contents, has_head):
    with TemporaryDirectory() as folder:
        files = JobFiles.of(Path(folder, "out.jsonl"))
        start = [packed(HEAD), packed(ANSWER)] if has_head else []
        files.journal.write_bytes(b"".join(frame(each, 0) for each in [*start, *contents]))
        files.output.write_bytes(LINE)
        for read in readers(files):
            with suppress(ConfigError):
                read()


def test_a_record_that_is_no_jobs_is_refused_with_its_place_and_a_replay_takes_what_stands_before(tmp_path):
    files = JobFiles.of(tmp_path / "out.jsonl")
    sound = frame(packed(HEAD), 0) + frame(packed(ANSWER), 0)
    files.journal.write_bytes(sound + frame(packed(Forgotten([NUM_ROWS])), 0))
    for read in (files.state, files.export, lambda: list(read_records(files.journal))):
        with pytest.raises(ConfigError, match=f"has at byte {len(sound)} what is of row {NUM_ROWS}"):
            read()
    AnswerFinder(files.journal).close()


def test_an_answer_whose_receipt_is_damaged_is_written_without_and_its_line_is_named(tmp_path):
    files = JobFiles.of(tmp_path / "out.jsonl")
    damaged = Answered(1, 1, 200, 1, 0, 2, LINE, receipt=b"\x00\x01garbage")
    files.journal.write_bytes(b"".join(frame(packed(each), 0) for each in (HEAD, ANSWER, damaged)))
    assert files.export(with_receipts=True) == (2, 0, 1, [2]) and files.output.read_bytes() == 2 * LINE


@for_each("num_synced", [0, 1])
def test_an_output_and_its_failures_are_both_new_or_both_as_they_were(tmp_path, num_synced, monkeypatch):
    files = JobFiles.of(tmp_path / "out.jsonl")
    records = (HEAD, ANSWER, Answered(1, 1, 400, 1, 0, 0, b"{}\n"))
    files.journal.write_bytes(b"".join(frame(packed(each), 0) for each in records))
    files.output.write_text("earlier")
    syncs, sync = count(), os.fsync

    def full(file: int) -> None:
        if next(syncs) == num_synced:
            raise OSError(errno.ENOSPC, "full")
        sync(file)

    with monkeypatch.context() as disk, pytest.raises(PenstockError, match="cannot be written"):
        disk.setattr(job_files, "os", mock.Mock(wraps=os, fsync=full))  # of the two files alone
        files.write()
    assert files.output.read_text() == "earlier" and set(tmp_path.iterdir()) == {files.output, files.journal}
