"""Texts and tables of jobs: which row a line is, the files that vectors and answers go to, and what is refused."""

import gzip
import io
import json
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy
import pytest
from builders.cases import for_each
from hypothesis import given
from hypothesis import strategies as some

from penstock import PoolingParams, SamplingParams
from penstock.frontend.commands.numbers import rerank
from penstock.frontend.jobs.formats.formats import sink_of
from penstock.frontend.jobs.formats.vectors import Shape, VectorRow, vectors_of
from penstock.frontend.jobs.job import Job, JobOptions
from penstock.frontend.jobs.job_input import JobInput
from penstock.frontend.rows.texts import TextOptions, is_plain, text_row
from penstock.protocol.errors import ConfigError, PenstockError, RequestError

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
    [{"messages": TALK, "tools": [{"type": "function", "function": {"name": "f"}}], "logit_bias": {"5": 1.0},
      "response_format": {"type": "json_object"}, "guided_decoding": {"regex": "a"},
      "chat_template_kwargs": {"a": 1}}] * 2,
])  # fmt: skip
def test_a_tables_rows_are_those_of_lines_with_its_columns_as_keys(tmp_path, rows):
    assert rows_of(table(tmp_path / "in.parquet", rows)) == rows
    if "prompt_token_ids" not in rows[0]:  # the others may be JSON
        written = [
            {key: json.dumps(each) for key, each in row.items() if isinstance(each, dict | list)} for row in rows
        ]
        as_json = [row | own for row, own in zip(rows, written, strict=True)]
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


def test_a_job_from_a_table_into_a_table_has_the_answers_of_one_of_lines(batch, tmp_path):
    lines, rows = tmp_path / "in.jsonl", [*PLAIN, {"prompt": "wrong", "temperature": -5.0}]
    lines.write_text("\n".join(map(json.dumps, rows)))
    packed = tmp_path / "answers.jsonl.gz"
    assert batch(lines, packed).returncode == 3
    expected = gzip.decompress(packed.read_bytes()).decode().splitlines()
    source, answers = table(tmp_path / "in.parquet", rows), tmp_path / "answers.parquet"
    done = batch(source, answers)
    assert done.returncode == 3, done.stderr
    found = sys.modules["pyarrow.parquet"].read_table(answers).to_pylist()
    assert [row["answer"] for row in found] == expected
    assert [row["id"] for row in found] == ["a", "1", "2"]
    assert [row["text"] for row in found] == [json.loads(line)["outputs"][0]["text"] for line in expected]
    assert found[0]["output_tokens"] == 3 and found[0]["finish_reason"] == "length"
    assert len((tmp_path / "answers.parquet.errors.jsonl").read_text().splitlines()) == 1


CUT = PoolingParams(truncate_prompt_tokens=4)


def texts(name: str = "in.jsonl", **options: object) -> TextOptions:
    return TextOptions.of(Path(name), CUT, **options)


@for_each("name, plain", [
    ("a.txt", True), ("a", True), ("a.txt.gz", True), ("a.jsonl", False), ("A.JSONL.ZST", False), ("a.parquet", False),
    ("jsonl", True),
])  # fmt: skip
def test_a_files_name_says_whether_its_lines_are_json(name, plain):
    assert is_plain(Path(name)) is plain
    assert texts(name, plain=True).is_plain and not texts(name, field="a").is_plain


@for_each("line, prompt, name", [
    ('"a"', "a", None), ("[5, 6]", [5, 6], None), ('{"text": "a", "id": 7}', "a", 7), ('{"input": "a"}', "a", None),
    ('{"prompt": "a", "_id": "x"}', "a", "x"), ('{"prompt_token_ids": [5]}', [5], None), ('{"input": [5]}', [5], None),
    ('{"custom_id": "c", "url": "/v1/embeddings", "body": {"model": "m", "input": "a"}}', "a", "c"),
])  # fmt: skip
def test_a_line_has_its_text_under_one_of_several_names(line, prompt, name):
    row = text_row(1, line, texts(), SamplingParams())
    assert (row.prompt, row.name, list(row.question.prompts(None, ""))) == (prompt, name, [(prompt, CUT)])


@for_each("line, sentence", [
    ("a hen", "not JSON.*--plain"), ("5", "neither a text"), ("[[5]]", "neither a text"), ("{}", "has none"),
    ('{"text": "a", "input": "b"}', "has text and input"), ('{"text": "a", "title": "b"}', "'title'.*--field"),
    ('{"text": 5}', "one text"), ('{"text": ["a"]}', "one text"), ('{"text": "a", "dimensions": 8}', "'dimensions'"),
    ('{"text": "a", "instruction": 5}', "instruction=5"), ('{"id": [], "text": "a"}', "`id`"),
    ('{"url": "/v1/rerank", "body": {}}', "penstock batch"), ('{"url": "/v1/embeddings", "body": 5}', "embeddings"),
    ('{"url": "/v1/embeddings", "body": {"input": "a", "dimensions": 8}}', "--dimensions"),
])  # fmt: skip
def test_a_line_that_is_no_text_is_refused_alone(line, sentence):
    row = text_row(3, line, texts(), SamplingParams())
    assert isinstance(row.prompt, RequestError) and row.question is None
    with pytest.raises(RequestError, match=f"^Line 3.*{sentence}"):
        raise row.prompt


@given(some.text(alphabet=some.characters(exclude_characters="\n\r", exclude_categories=("Cs",))))
def test_a_plain_line_is_its_text_and_a_field_may_have_any_name(text):
    assert text_row(1, text + "\r\n", texts("a.txt"), SamplingParams()).prompt == text
    line = json.dumps({"id": text, "title": 5})
    row = text_row(1, line, texts(field="id"), SamplingParams())
    assert (row.prompt, row.name) == (text, None)


@given(some.integers(0, 9), some.integers(0, 5), some.sets(some.integers(0, 8)))
def test_an_array_has_a_row_for_each_line_and_nan_where_there_is_no_vector(num_rows, width, there):
    file = io.BytesIO()
    rows = {row: numpy.arange(width, dtype=numpy.float32) + row for row in sorted(there) if row < num_rows}
    with vectors_of(Path("a.npy"), file, Shape(num_rows, width)) as write:
        for row, vector in rows.items():
            write(VectorRow(row, b"", vector.tobytes()))
    file.seek(0)
    found = numpy.load(file)
    assert found.shape == (num_rows, width) and found.dtype == numpy.float32
    for row in range(num_rows):
        assert numpy.array_equal(found[row], rows[row]) if row in rows else numpy.isnan(found[row]).all()


def test_a_table_and_lines_have_the_vectors_that_there_are():
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs penstock[parquet]")
    vectors = numpy.random.default_rng(1).normal(size=(1500, 3)).astype(numpy.float32)
    for name in ("a.parquet", "a.jsonl"):
        file = io.BytesIO()
        with vectors_of(Path(name), file, Shape(1600, 3)) as write:
            for row, vector in enumerate(vectors):
                line = {"index": row + 50, "id": f"n{row}", "usage": {"prompt_tokens": 2}}
                write(VectorRow(row + 50, json.dumps(line).encode() + b"\n", vector.tobytes()))
        file.seek(0)
        if name == "a.jsonl":
            assert [json.loads(line)["embedding"] for line in file] == vectors.tolist()
            continue
        table = parquet.read_table(file)
        assert table.column("embedding").to_pylist() == vectors.tolist()
        assert table.column("id")[1].as_py() == "n1" and table.column("row")[1].as_py() == 51


@for_each("name, end", [("a.npy", ".npy"), ("a.parquet", ".parquet")])
def test_a_vector_of_another_width_is_damage(name, end):
    if end == ".parquet":
        pytest.importorskip("pyarrow", reason="needs penstock[parquet]")
    row = VectorRow(0, b'{"index":0,"usage":{"prompt_tokens":1}}\n', numpy.zeros(2, numpy.float32).tobytes())
    with (
        pytest.raises(ConfigError, match="2 numbers where others have 3"),
        vectors_of(Path(name), io.BytesIO(), Shape(4, 3)) as write,
    ):
        write(row)


def documents(path: Path) -> Any:
    return rerank._documents(Namespace(source=str(path), plain=False, field=None))


def test_documents_to_rank_have_no_parameters_and_no_json_in_plain_text(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a", "instruction": "find"}\n{"text": "b", "id": 1}\n')
    [document], [fault] = documents(path)
    assert (document.number, document.text) == (2, "b") and "Line 1: instruction is for the query" in fault
    with pytest.raises(ConfigError, match="begins with a JSON object.*--plain"):
        documents(path.rename(tmp_path / "in.txt"))


@for_each("source, is_refused", [
    ('["a", "b"]', True), ('\n[\n  "a",\n  "b"\n]', True), ('[["a"]]', True), ('[{"text": "a"}]', True),
    ("[1, 2, 3]", False), ('"a"', False), ("[]", False), ('{"text": "[1]"}', False),
])  # fmt: skip
def test_an_array_of_texts_is_refused_before_anything_is_made_of_it(tmp_path, source, is_refused):
    path = tmp_path / "in.json"
    path.write_text(source)
    for begin in (
        lambda: Job(path, tmp_path / "out.npy", JobOptions.of_texts(TextOptions.of(path, CUT), "m")).close(),
        lambda: documents(path),
    ):
        with pytest.raises(ConfigError, match="Write one text a line") if is_refused else nullcontext():
            begin()


@for_each("source, output, sentence", [
    ('{"text": "a"}', "out.npy", "begins with a JSON object.*--plain"), ("a", "out.txt", "ends in .npy"),
    ("a", "out", "ends in .npy"), ("\n \n", "out.npy", "is empty"),
])  # fmt: skip
def test_a_job_of_texts_that_cannot_be_meant_is_refused_and_leaves_nothing(tmp_path, source, output, sentence):
    path = tmp_path / "in.txt"
    path.write_text(source)
    with pytest.raises(ConfigError, match=sentence):
        Job(path, tmp_path / output, JobOptions.of_texts(TextOptions.of(path, CUT), "m"))
    assert list(tmp_path.iterdir()) == [path]
