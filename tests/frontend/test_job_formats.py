"""Files of jobs in other formats than JSON lines: the same rows, and the same answers, by their names alone."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.cases import for_each
from builders.shell import STAND_IN

from penstock.frontend.jobs.formats.formats import sink_of
from penstock.frontend.jobs.job_input import JobInput
from penstock.protocol.errors import ConfigError, PenstockError

TALK = [{"role": "user", "content": "one"}]
BODY = {"messages": [{"role": "system", "content": "Be brief."}, *TALK], "max_tokens": 4}
PLAIN = [{"prompt": "one", "max_tokens": 3, "id": "a"}, {"prompt": "two"}, {"prompt": "three", "max_tokens": 5}]
BATCH = [
    {"custom_id": f"line {number}", "method": "POST", "url": "/v1/chat/completions", "body": BODY}
    for number in range(2)
]


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs penstock[parquet]")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    parquet.write_table(sys.modules["pyarrow"].Table.from_pydict(columns), path)
    return path


def rows_of(path: Path) -> list[Any]:
    return [json.loads(line.line) for line in JobInput(path).lines()]


@for_each("rows", [
    PLAIN,
    [{"messages": TALK, "temperature": 0.5}, {"messages": [{"role": "system", "content": "Be brief."}, *TALK]}],
    [{"prompt_token_ids": [1, 2]}, {"prompt_token_ids": [3]}],
    BATCH,
])  # fmt: skip
def test_a_tables_rows_are_those_of_lines_with_its_columns_as_keys(tmp_path, rows):
    assert rows_of(table(tmp_path / "in.parquet", rows)) == rows
    as_json = [{key: json.dumps(each) if isinstance(each, dict) else each for key, each in row.items()} for row in rows]
    assert rows_of(table(tmp_path / "json.parquet", as_json)) == rows
    survey = JobInput(tmp_path / "in.parquet").survey()
    assert survey.num_rows == len(rows)
    assert survey.digest != JobInput(table(tmp_path / "other.parquet", rows[:1])).survey().digest


@for_each("rows, sentence", [
    ([{"prompt": "one", "max_token": 3}], "'max_token' is neither .* Did you mean max_tokens"),
    ([{**BATCH[0], "source": "web"}], "A line of a batch has no 'source'"),
    ([BATCH[0], BATCH[0]], "has the custom_id 'line 0' in line 1 and in line 2"),
])  # fmt: skip
def test_a_table_that_cannot_be_answered_is_refused(tmp_path, rows, sentence):
    path = table(tmp_path / "in.parquet", rows)
    with pytest.raises(ConfigError, match=sentence):
        JobInput(path).survey()


def test_what_is_no_table_is_refused_and_so_is_one_without_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "in.parquet"
    path.write_text("no table")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow.parquet", None)
        without.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ConfigError, match=r"penstock\[parquet\]"):
            JobInput(path)
    pytest.importorskip("pyarrow", reason="needs penstock[parquet]")
    with pytest.raises(PenstockError, match="cannot be read as a Parquet file"):
        JobInput(path).survey()


@for_each("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_lines_are_packed_and_unpacked_by_the_files_name_into_the_same_bytes(tmp_path, suffix):
    if suffix.endswith("zst") and sys.version_info < (3, 14):
        pytest.importorskip("zstandard", reason="needs a package for .zst")
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in files:
        with path.open("wb") as file, sink_of(path, file) as sink:
            for row in PLAIN:
                sink.write(json.dumps(row).encode() + b"\n")
    assert files[0].read_bytes() == files[1].read_bytes()
    assert rows_of(files[0]) == PLAIN


def test_a_job_from_a_table_into_a_table_has_the_answers_of_one_of_lines(shell, shell_model, tmp_path):
    lines, rows = tmp_path / "in.jsonl", [*PLAIN, {"prompt": "wrong", "temperature": -5.0}]
    lines.write_text("\n".join(map(json.dumps, rows)))
    packed = tmp_path / "answers.jsonl.gz"
    batch = ("--model", shell_model, *STAND_IN, "--quiet")
    assert shell.run("batch", lines, packed, *batch).returncode == 3
    expected = gzip.decompress(packed.read_bytes()).decode().splitlines()
    source, answers = table(tmp_path / "in.parquet", rows), tmp_path / "answers.parquet"
    done = shell.run("batch", source, answers, *batch)
    assert done.returncode == 3, done.stderr
    found = sys.modules["pyarrow.parquet"].read_table(answers).to_pylist()
    assert [row["answer"] for row in found] == expected
    assert [row["id"] for row in found] == ["a", "1", "2"]
    assert [row["text"] for row in found] == [json.loads(line)["outputs"][0]["text"] for line in expected]
    assert found[0]["output_tokens"] == 3 and found[0]["finish_reason"] == "length"
    assert len((tmp_path / "answers.parquet.errors.jsonl").read_text().splitlines()) == 1
