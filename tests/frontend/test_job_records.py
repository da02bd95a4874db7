"""What a job makes of its journal's records and of its rows; records that are no job's are refused with their place."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import msgspec
import pytest
from builders.cases import for_each
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.frontend.jobs import job_files
from penstock.frontend.jobs.answer_keeper import AnswerKeeper
from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.job_input import InputLine
from penstock.frontend.jobs.journal.checked_records import read_records
from penstock.frontend.jobs.journal.journal import frame
from penstock.frontend.jobs.journal.records import (
    Answered,
    Began,
    Bits,
    Continued,
    Died,
    Forgotten,
    Head,
    JobState,
    Progressed,
    packed,
    unpacked,
)
from penstock.frontend.jobs.ledger import EnergyMeter, ledger
from penstock.frontend.jobs.run import JobRun, seed_of
from penstock.frontend.replay.finder import AnswerFinder
from penstock.frontend.rows.order import beginning_of, in_prefix_order
from penstock.frontend.rows.prompts import Row, json_row
from penstock.frontend.verify.lines import from_file
from penstock.protocol.errors import ConfigError, EngineDeadError, PenstockError, RequestError
from penstock.protocol.messages import Said
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column


def test_the_last_record_of_a_row_counts():
    state = JobState()
    for record in (
        Head({}, 9), Answered(3, 1, 200, 5, 0, 2, b"x"), Answered(8, 1, 400, 0, 0, 0, b"y"), Died([1, 3], "a cause"),
        Died([1], "another"), Forgotten([8, 2]), Answered(1, 1, 200, 1, 1, 1, b"z"),
    ):  # fmt: skip
        state.take(record)
    assert (state.num_done, state.num_failed, state.num_prompt, state.deaths) == (2, 0, 6, {3: 1})
    assert [row for row in range(20) if row in state.done] == [1, 3]


def test_what_unfinished_answers_have_said_counts_among_the_tokens_until_it_is_dropped():
    said = [Said(b"\0" * 40), Said(b"\0" * 8)]
    records = [Head({}, 9), Began(False), Progressed(0.0, 2, 0), Continued(1, said), Continued(2, said)]
    state = JobState.of([*records, Continued(1, said), Progressed(4.0, 2, 0)])
    assert state.num_output == 36 and state.tokens_per_second == 9
    for record, num_output in ((Answered(1, 1, 200, 5, 0, 30, b"x"), 42), (Forgotten([2]), 30)):
        state.take(record)
        assert state.num_output == num_output


def test_each_record_of_an_unfinished_answer_has_what_was_said_since_the_last():
    state = JobState()
    keeper = SimpleNamespace(job=SimpleNamespace(state=state, append=state.take))
    for length in (0, 1, 3, 3, 4):
        said = [Said(column(range(sample, sample + length))) for sample in range(2)]
        AnswerKeeper.keep_unfinished(keeper, 3, said)
    assert state.said == {3: said} and state.num_said == 8


def test_a_record_of_an_earlier_version_is_read_without_its_later_fields():
    answered = (3, 1, 200, 5, 0, 2, b"x")
    assert unpacked(msgspec.msgpack.encode(["answered", *answered])) == Answered(*answered)


def test_a_set_of_rows_takes_a_bit_a_row():
    rows = Bits()
    assert not any(rows.put(row, True) for row in range(0, 100_000, 3))
    assert sum(row in rows for row in range(200_000)) == len(range(0, 100_000, 3))
    assert rows.put(3, False) and not rows.put(3, False) and 3 not in rows and 6 in rows


def test_the_seed_of_a_row_depends_on_the_job_the_row_and_its_custom_id():
    seeds = {seed_of(*given) for given in ((0, 0, ""), (0, 1, ""), (1, 0, ""), (0, 0, "a"))}
    assert len(seeds) == 4 and all(0 <= seed < 2**63 for seed in seeds) and seed_of(0, 1, "a") == seed_of(0, 1, "a")


def test_a_death_is_put_down_to_as_many_of_the_first_rows_as_the_engine_computes_at_once():
    kept, run = [], JobRun.__new__(JobRun)
    run._in_flight = {position: (InputLine(7 - position, 1, ""), None) for position in (3, 0, 2, 1)}
    run.session = SimpleNamespace(plan=None, tree_config=SimpleNamespace(step_limits=lambda device: (3, 9)))
    run.job = SimpleNamespace(append=kept.append, journal=SimpleNamespace(commit=lambda: kept.append("on the disk")))
    run._died(None, EngineDeadError("x"))
    assert kept == [Died([7, 6, 5], "x"), "on the disk"]


def test_rows_that_begin_alike_are_computed_one_after_another_within_a_stretch():
    rules = [f"Rule {number}: " + "be brief. " * 40 for number in range(5)]
    asked = [(f"{index}", rules[index * 7 % 5]) for index in range(3000)]

    def rows() -> Iterator[tuple[InputLine, Row]]:
        for index, (name, rule) in enumerate(asked):
            messages = [{"role": "system", "content": rule}, {"role": "user", "content": name}]
            line = json.dumps({"custom_id": name, "url": "/v1/chat/completions", "body": {"messages": messages}})
            yield InputLine(index, index + 1, line), json_row(index + 1, line, SamplingParams())

    found = [line.row for line, _ in in_prefix_order(rows())]
    assert sorted(found) == list(range(3000))
    rules_in_turn = [rule for rule, _ in groupby(asked[row][1] for row in found)]
    assert len(rules_in_turn) <= 2 * len(rules)  # two stretches
    tenants = [Row("same", SamplingParams(cache_salt=salt)) for salt in "abab"]
    lines = [(InputLine(index, index + 1, "same"), row) for index, row in enumerate(tenants)]
    assert [line.row for line, _ in in_prefix_order(lines)] == [0, 2, 1, 3]


@for_each("prompt", ["text", [1, 2], {"prompt_token_ids": [1 << 80]}, {"prompt": 5}, RequestError("no"), None])
def test_a_row_of_any_kind_has_a_place_among_the_others(prompt):
    assert isinstance(beginning_of(Row(prompt, SamplingParams()))[2], str)


def test_the_ledger_has_the_energy_of_all_runs_where_the_machine_tells(tmp_path):
    for zone, name in (("0", "package-0"), ("0:0", "core"), ("0:1", "dram"), ("1", "psys")):
        (folder := tmp_path / f"intel-rapl:{zone}").mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text("10000000\n")
        (folder / "energy_uj").write_text("9000000\n")
    meter = EnergyMeter(tmp_path)
    (tmp_path / "intel-rapl:0/energy_uj").write_text("1000000\n")  # it has begun again at 0
    (tmp_path / "intel-rapl:0:1/energy_uj").write_text("9500000\n")
    assert meter.joules() == 2.5 and meter.joules() == 2.5
    assert EnergyMeter(tmp_path / "nowhere").joules() == 0
    records = [Began(False), Progressed(1.0, 0, 0, 1800.0), Began(False), Progressed(2.0, 0, 0, 3600.0)]
    assert "energy 1.50 Wh" in ledger(JobState.of(records))
    assert "energy" not in ledger(JobState.of([Began(False), Progressed(1.0, 0, 0)]))


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
        files.state, lambda: files.export(with_receipts=True),
        lambda: list(from_file(files.journal.open("rb"), str(files.journal))),
        lambda: AnswerFinder(files.journal).close(), lambda: AnswerFinder(files.output).close(),
    ]  # fmt: skip


@settings(max_examples=150)
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
