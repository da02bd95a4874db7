"""Prompts as a shell gives them: arguments, lines of text, lines of JSON, and lines that are no requests."""

import io
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from builders.cases import for_each
from builders.shell import run_here

from penstock.frontend.rows import lines as reading
from penstock.frontend.rows.lines import count_prompts
from penstock.frontend.rows.prompts import from_arguments, from_json_lines, from_lines, require_prompt
from penstock.protocol.errors import ConfigError, RequestError
from penstock.protocol.parameters.sampling import SamplingParams

PARAMS = SamplingParams(max_tokens=7)


def test_each_line_of_text_and_each_argument_is_a_prompt_as_it_stands_or_its_own_refusal():
    assert [row.prompt for row in from_lines(io.StringIO("one\n\n  two \r\n"), PARAMS)] == ["one", "  two "]
    text, empty, bad = from_arguments(["two\nlines\n", "", "\udcff"], PARAMS)
    assert (text.prompt, empty.prompt) == ("two\nlines\n", "") and isinstance(bad.prompt, RequestError)


@for_each("line, prompt, name, max_tokens", [
    ('"text"', "text", None, 7), ("[1, 2]", [1, 2], None, 7),
    ('{"prompt": "text", "id": "a"}', {"prompt": "text"}, "a", 7),
    ('{"prompt_token_ids": [1], "max_tokens": 2, "id": 5}', {"prompt_token_ids": [1]}, 5, 2),
])  # fmt: skip
def test_a_json_line_brings_a_prompt_a_name_and_parameters(line, prompt, name, max_tokens):
    [row] = from_json_lines([line], PARAMS)
    assert (row.prompt, row.name, row.params.max_tokens) == (prompt, name, max_tokens)


@for_each("line, sentence", [
    ('{"prompt": "x", "temperature": -1}', "Line 2: temperature=-1"),
    ('{"messages": "hello"}', "Line 2: `messages` must be a list"),
    ('{"messages": [], "prompt": "hello"}', "Line 2: 'prompt' can't be combined with `messages`"),
    ('{"messages": [], "tools": {}}', "Line 2: `tools` must be a list"),
    ('{"custom_id": 5, "url": "/v1/chat/completions", "body": {}}', "Line 2: custom_id=5"),
    ('{"url": "/v1/chat/completions", "body": {}}', "Line 2: custom_id=None"),
    ('{"prompt": "x", "image": 1}', "Line 2: image"),
])  # fmt: skip
def test_a_json_line_that_is_no_request_becomes_its_own_refusal(line, sentence):
    [_, row] = from_json_lines(['"good"', line], PARAMS)
    assert isinstance(row.prompt, RequestError)
    assert str(row.prompt).startswith(sentence)


def test_lines_are_read_as_they_are_wanted():
    def lines() -> Iterator[str]:
        yield '"first"'
        raise RuntimeError("the second line was read too early")

    assert next(from_json_lines(lines(), PARAMS)).prompt == "first"


@for_each("lines", [[], ["\n", "\r\n"]])
@for_each("is_json", [True, False])
def test_lines_without_a_prompt_are_refused_and_others_are_all_there(lines, is_json):
    with pytest.raises(ConfigError, match="prompts.jsonl is empty, so there is no prompt to answer. Write "):
        require_prompt(lines, "prompts.jsonl", is_json=is_json)
    some = ['"one"\n', "\n", "two\n"]
    assert list(require_prompt([*lines, *some], "-", is_json=is_json)) == ["\n"] * len(lines) + some
    refusal = RequestError("This line is not UTF-8.")
    assert list(require_prompt([refusal], "-", is_json=is_json)) == [refusal]


@for_each("text, is_refused", [("one\n\ntwo\n", True), ("# two sums\n" * 9, True), ("# two sums\n[1]\n", False)])
def test_a_file_of_plain_text_is_refused_as_a_whole_with_what_its_lines_would_be(text, is_refused):
    lines = io.StringIO(text)
    if not is_refused:
        assert "".join(require_prompt(lines, "prompts.txt", is_json=True)) == text
        return
    with pytest.raises(ConfigError, match=r'prompts.txt is plain text. Each line of .* \{"prompt": .*MODEL < FILE'):
        require_prompt(lines, "prompts.txt", is_json=True)


@for_each("piece", [1, 2, 3, 7, 1 << 20])
@for_each(
    "content, in_json, in_text",
    [(b"", 0, 0), (b"a", 1, 1), (b"\n a\r\n\r\nbcd\n", 2, 2), (b" \na\n \t\nb", 2, 4), (b"abcdefgh\n" * 5, 5, 5)],
)
def test_prompts_of_a_file_are_counted_before_they_are_read(piece, content, in_json, in_text, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_PIECE", piece)
    (tmp_path / "prompts").write_bytes(content)
    with open(tmp_path / "prompts", "rb") as file:
        assert (count_prompts(file, is_json=True), count_prompts(file, is_json=False)) == (in_json, in_text)
        assert file.read() == content
    assert len(list(from_lines(io.StringIO(content.decode(), newline="\n"), PARAMS))) == in_text
    reader, writer = os.pipe()
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert count_prompts(pipe, is_json=True) is None


DEEP = b"[" * 100_000
# Line → what is said of it.
HARD = {
    b'{"prompt": 5}': "must be text, not int",
    b'{"prompt_token_ids": "12"}': "whole numbers",
    b'["a"]': "whole numbers", b"[true]": "whole numbers",
    b'["a", 100000000000000000000]': "whole numbers",
    b"[100000000000000000000]": "vocabulary", b'"\\ud800"': "half a surrogate pair",
    b'{"prompt": "x", "id": "\\udfff"}': "half a surrogate pair",
    b'"\xff\xfe"': "is not UTF-8: byte 2 of it is 0xff",
    DEEP: "nested too deep",
    b'{"prompt": "x", "guided_json": {"a": ' + DEEP[:5000] + b"]" * 5000 + b"}}": "nested too deep",
    b"NaN": "NaN is no number",
    b'{"prompt": "x", "temperature": -Infinity}': "-Infinity is no number",
    b'{"prompt": "x", "id": 1e999}': "1e999, which is too large",
    b"9" * 5000: "too many digits",
    b'{"prompt": "a", "prompt": "b"}': "the key 'prompt' twice",
    b'{"prompt": "a", "id": []}': "an `id` that is neither",
    b'{"prompt": "a", "colour": 1}': "'colour' is neither",
    b'{"prompt": "a", "stop": 5}': "stop=5", b"null": "neither a text",
    b'"nul\0"': "not JSON: Invalid control character at character 5",
    b'"unfinished': "not JSON", b"{}": "needs `prompt`",
    b'"' + b"x" * (3 << 20) + b'"': "has more than 2 MiB",
}  # fmt: skip


def answers(text: str) -> dict[int, dict[str, Any]]:
    return {record["index"]: record for record in map(json.loads, text.splitlines())}


def test_a_line_that_is_no_request_fails_alone_in_its_place(generated, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_LINE", 2 << 20)
    lines = [line for hard in HARD for line in (hard, b'\xef\xbb\xbf"good"\r', b"")]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines).rstrip())  # without an end of the last line
    words = ("--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
    done = generated(*words, "--format", "jsonl", "--max-tokens", 3)
    told = f"penstock: {len(HARD)} of {2 * len(HARD)} prompts failed; the line of each says why.\n"
    assert (done.returncode, done.stderr, done.stdout) == (1, told, "")
    records = answers((tmp_path / "out.jsonl").read_text())
    assert len(records) == 2 * len(HARD)
    for number, sentence in enumerate(HARD.values()):
        failed, good = records[2 * number], records[2 * number + 1]
        assert failed["error_code"] == 400 and sentence in failed["error_msg"], (sentence, failed)
        assert "error_code" not in good and good["prompt"] == "good"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_lines_of_text_fail_alone_too(generated):
    words = ("--format", "jsonl", "--max-tokens", 3)
    done = generated(*words, "\udcff")
    assert done.returncode == 1 and "not UTF-8" in done.stdout  # of an argument
    done = generated(*words, stdin=b"\xef\xbb\xbfone\r\n\n\xef\xbb\xbf\xff\nt\0wo\nlast")
    records = answers(done.stdout)
    assert [records[number]["prompt"] for number in (0, 2, 3)] == ["one", "t\0wo", "last"]
    assert records[1]["error_msg"] == "Line 3 is not UTF-8: byte 1 of it is 0xff." and done.returncode == 1


@for_each("encoding", ["utf-16", "utf-16-be"])
def test_a_file_in_utf_16_is_named_before_anything_starts(tmp_path, encoding):
    text = '"one"\n"two"\n' if encoding == "utf-16" else '\ufeff"one"\n'
    (tmp_path / "in.jsonl").write_bytes(text.encode(encoding))
    (tmp_path / "out.jsonl").write_text("earlier\n")
    done = run_here("generate", "pocket", "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
    assert done.returncode == 1 and "in.jsonl is written in UTF-16" in done.stderr
    assert (tmp_path / "out.jsonl").read_text() == "earlier\n"
