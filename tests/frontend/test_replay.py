"""Replay: which answer of an earlier run a prompt is expected to get, from whatever file, and that it changes none."""

import gzip
import json
import os
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
from builders.bundled_model import FOLDER
from builders.cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.jobs.formats.formats import sink_of
from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.journal.journal import Journal
from penstock.frontend.jobs.journal.records import Answered, Head, packed
from penstock.frontend.receipts.receipt import ClaimedSample, Receipt
from penstock.frontend.receipts.written import packed_ids
from penstock.frontend.replay import answers, earlier_run
from penstock.frontend.replay.answers import EarlierAnswer
from penstock.frontend.replay.finder import AnswerFinder
from penstock.frontend.replay.index import AnswerIndex
from penstock.frontend.requests.prompts import Conversation, RenderedPrompt, parse_prompt
from penstock.frontend.rows import lines as lines_of_files
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import ConfigError
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column, values

TOKENIZER = Tokenizer(FOLDER)
VOCABULARY = len(TOKENIZER)
LENGTH = 512
SYSTEM = {"role": "system", "content": "Be brief."}
ONE = {"role": "user", "content": "one"}
TALK = [ONE, {"role": "assistant", "content": "two"}, {"role": "user", "content": "?"}]


def record(ids: list[int], **given: Any) -> dict[str, Any]:
    return {**given, "outputs": [{"text": "", "token_ids": ids}]}


def batch(name: str, **body: Any) -> dict[str, Any]:
    return {"id": "batch_req_1", "custom_id": name, "response": {"status_code": 200, "body": body}}


def file_of(folder: Path, lines: list[Any], name: str = "last.jsonl") -> Path:
    """A file with these lines, some of them as they are."""
    path = folder / name
    with open(path, "wb") as file, sink_of(path, file) as sink:
        for line in lines:
            sink.write((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")
    return path


def replay_of(path: Path, vocab_size: int = VOCABULARY) -> AnswerFinder:
    replay = AnswerFinder(path)
    replay.begin(vocab_size, LENGTH, lambda: TOKENIZER)
    return replay


def expected(replay: AnswerFinder, prompt: Any, name: str | None = None, row: int | None = None, **of: Any) -> Any:
    parsed = parse_prompt(prompt, SamplingParams(n=of.get("n", 1), max_tokens=of.get("max_tokens")))
    return [list(values(each)) for each in replay.expected(parsed, name, row, of.get("num_rows"))]


# --- which answer -----------------------------------------------------------------------------------------------------


@for_each("line, prompt, name", [
    (record([5], prompt="one"), "one", None),
    (record([5], prompt="one"), RenderedPrompt("<user>one</user>", messages=[SYSTEM, ONE]), None),
    (record([5], prompt=[7, 8]), [7, 8], None),
    (record([5], prompt="rendered", prompt_token_ids=[7, 8]), {"prompt_token_ids": [7, 8]}, None),
    (record([5], messages=TALK), Conversation(TALK), None),
    (record([5], messages=[SYSTEM, *TALK]), RenderedPrompt("", messages=TALK), None),
    (record([5], messages=[{"role": "user", "content": [{"type": "text", "text": "one"}]}]), "one", None),
    (record([5], prompt="before", id=3), "after", "3"),
    ({**batch("mine", **record([5])), "prompt": "before"}, "after", "mine"),
])  # fmt: skip
def test_an_answer_is_found_by_name_or_by_prompt_in_whatever_form_it_is(tmp_path, line, prompt, name):
    replay = replay_of(file_of(tmp_path, [record([1], prompt="another", id="another"), line]))
    assert expected(replay, prompt, name, 0) == [[5]]
    assert expected(replay, "never asked", "unknown", 1) == []
    assert "1 of 2 lines found in " in replay.summary()


def test_names_go_before_prompts_and_places_count_only_in_files_of_the_same_length_and_without_names(tmp_path):
    lines = [record([1], prompt="one"), record([2], prompt="two"), record([3], prompt="one")]
    replay = replay_of(file_of(tmp_path, lines))
    assert [expected(replay, "edited", None, row, num_rows=3) for row in range(4)] == [[[1]], [[2]], [[3]], []]
    assert expected(replay, "edited", None, 1, num_rows=4) == []
    # Of two answers to one prompt it is the one in the same place, else the first.
    assert [expected(replay, "one", None, row, num_rows=3) for row in (0, 1, 2)] == [[[1]], [[1]], [[3]]]
    named = [{**line, "id": name} for name, line in zip("abc", lines)]
    replay = replay_of(file_of(tmp_path, named))
    assert expected(replay, "two", "a", 1, num_rows=3) == [[1]]
    assert expected(replay, "two", "new", 0, num_rows=3) == [[2]]
    assert expected(replay, "edited", "new", 0, num_rows=3) == []


def test_each_sample_has_its_own_and_further_ones_none(tmp_path):
    line = {"prompt": "one", "outputs": [{"token_ids": [1, 2]}, {"token_ids": [3]}]}
    replay = replay_of(file_of(tmp_path, [line]))
    assert [expected(replay, "one", n=n) for n in (1, 2, 3)] == [[[1, 2]], [[1, 2], [3]], [[1, 2], [3]]]


def failing(kind: type, method: str) -> Any:
    """A value of a type whose method fails."""

    def fail(*of: Any) -> Any:
        raise ZeroDivisionError

    return type("Failing", (kind,), {method: fail})()


@for_each("prompt", [failing(list, "__iter__"), Conversation([ONE, failing(UserDict, "__getitem__")])])
def test_a_prompt_whose_own_values_fail_is_left_to_the_door_and_keeps_no_other_from_its_answer(tmp_path, prompt):
    replay = AnswerFinder(file_of(tmp_path, [record([5], prompt="one")]))
    parsed = [parse_prompt(each, SamplingParams()) for each in (prompt, "one")]
    replay.prepare(parsed)
    assert [each.expected for each in parsed] == [[], []]  # of which model it is isn't known yet
    replay.begin(VOCABULARY, LENGTH, lambda: TOKENIZER)
    replay.prepare(parsed)
    assert [each.expected for each in parsed] == [[], [column([5])]]


# --- what it has said -------------------------------------------------------------------------------------------------


@for_each("body, pieces", [
    ({"choices": [{"text": "two and two"}]}, ["two and two"]),
    ({"choices": [{"message": {"reasoning_content": "Hm.", "content": "Four."}}]}, ["Hm.", "Four."]),
    ({"choices": [{"message": {"tool_calls": [{"function": {"name": "add", "arguments": '{"a": 2}'}}]}}]},
     ["add", '{"a": 2}']),
    ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "Four."}]},
                 {"type": "function_call", "name": "add", "arguments": "{}"}]}, ["Four.", "add", "{}"]),
    ({"choices": [{"text": f"a{TOKENIZER.eos_token}b"}]}, ["a", "b"]),
])  # fmt: skip
def test_a_body_without_ids_gives_the_tokens_of_its_texts_and_no_special_ones(tmp_path, body, pieces):
    ids = [token for piece in pieces for token in TOKENIZER.encode(piece, add_special_tokens=False)]
    assert expected(replay_of(file_of(tmp_path, [batch("mine", **body)])), "", "mine") == [ids]


def test_an_answer_is_read_as_far_as_the_request_may_answer(tmp_path):
    text = "two and two " * 50_000
    ids = TOKENIZER.encode(text[:5000], add_special_tokens=False)
    receipt = Receipt({}, {}, b"", [ClaimedSample(packed_ids(ids), "stop", None)]).text()
    lines = [record(ids, prompt="ids"), {"prompt": "text", "outputs": [{"text": text}]}]
    replay = replay_of(file_of(tmp_path, [*lines, {"prompt": "receipt", "outputs": [{}], "receipt": receipt}]))
    for prompt in ("ids", "text", "receipt"):
        assert expected(replay, prompt, max_tokens=9) == [ids[:9]]
        assert expected(replay, prompt) == expected(replay, prompt, max_tokens=LENGTH + 1) == [ids[:LENGTH]]


def test_damaged_and_failed_lines_are_left_out_and_counted(tmp_path):
    failed = {**record([], prompt="two"), "error_code": 400, "error_msg": "…"}
    odd = {"prompt": {}, "id": [1], "messages": [3, {"role": 1, "content": 2}], "outputs": [0, {"token_ids": "no"}]}
    lines = [record([1], prompt="one"), '{"prompt": "tw', failed, "7", "[" * 100_000, odd]
    replay = replay_of(file_of(tmp_path, [*lines, record([2], prompt="two"), record([3.5], prompt="three")]))
    texts = ("one", "two", "three")
    assert [expected(replay, text, None, row) for row, text in enumerate(texts)] == [[[1]], [[2]], []]
    assert "2 of 3 lines found" in replay.summary() and ", where 4 have no answer" in replay.summary()


NAMES = [
    "custom_id", "id", "prompt", "messages", "outputs", "choices", "output", "response", "body", "token_ids", "text",
    "message", "content", "tool_calls", "function", "arguments", "receipt", "error_code", "role", "items",
]  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=6))
def test_whatever_stands_in_a_line_it_is_an_answer_or_none(line):
    if (answer := EarlierAnswer.of(json.dumps(line).encode())) is not None:
        assert all(0 <= key < 2**64 for key in answer.keys)
        assert all(isinstance(piece, int | str) for said in answer.samples(2, 4) for piece in said)


@for_each("lines, vocab_size, sentence", [
    (["nonsense", '"one"', '{"prompt": "one"}'], VOCABULARY,
     'has no answers that could be replayed.*penstock batch.*"outputs".*"prompt"'),
    ([], VOCABULARY, "has no answers"),
    ([record([1, VOCABULARY], prompt="one")], VOCABULARY, f"token id {VOCABULARY}, and .* 0 to {VOCABULARY - 1}"),
])  # fmt: skip
def test_a_file_that_cannot_be_of_use_is_refused_in_a_sentence(tmp_path, lines, vocab_size, sentence):
    with pytest.raises(ConfigError, match=sentence):
        replay_of(file_of(tmp_path, lines), vocab_size)


@for_each("make, name", [
    (lambda path: None, "last.jsonl"), (Path.mkdir, "last.jsonl"), (os.mkfifo, "last.jsonl"), (os.mkfifo, "x.journal"),
    (os.mkfifo, "last.jsonl.gz"), (Path.touch, "last.jsonl"),
    (lambda path: path.symlink_to("/proc/self/mem"), "last.jsonl"),
    (lambda path: path.symlink_to("/proc/kmsg"), "last.jsonl.gz"),
    (lambda path: path.write_text(json.dumps(record([1], prompt="one")), "utf-16"), "last.jsonl"),
])  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_at_once(tmp_path, make, name):
    make(tmp_path / name)
    with pytest.raises(ConfigError, match=f"{name} (cannot be read|is not a file|is empty|is written in UTF-16)"):
        AnswerFinder(tmp_path / name)


@for_each("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/proc/kmsg")])
def test_what_is_no_journal_next_to_an_output_is_left_alone(tmp_path, make):
    out = file_of(tmp_path, [record([5], prompt="one")])
    make(JobFiles.of(out).journal)
    assert expected(replay_of(out), "one") == [[5]]


# --- files ------------------------------------------------------------------------------------------------------------


@for_each("name", ["last.jsonl", "last.jsonl.gz", "last.parquet"])
def test_every_format_of_a_jobs_output_can_be_replayed(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    lines = [record([number], prompt=f"prompt {number}", index=number, usage={}) for number in range(9)]
    for line in lines:
        line["outputs"][0]["finish_reason"] = "stop"
    replay = replay_of(file_of(tmp_path, lines, name))
    assert [expected(replay, f"prompt {number}") for number in range(9)] == [[[number]] for number in range(9)]


@for_each("name", ["last.jsonl", "last.jsonl.gz"])
def test_byte_order_marks_and_lines_that_are_too_long_are_as_in_files_of_prompts(tmp_path, name, monkeypatch):
    for module in (answers, earlier_run, lines_of_files):
        monkeypatch.setattr(module, "LONGEST_LINE", 2 << 20)
    lines = [json.dumps(record([number], prompt=f"prompt {number}")) for number in range(3)]
    too_long = json.dumps(record([7], prompt="long", padding="a" * (9 << 20)))
    replay = replay_of(file_of(tmp_path, ["\ufeff" + lines[0], too_long, "\ufeff" + lines[1], lines[2]], name))
    assert [expected(replay, f"prompt {number}") for number in range(3)] == [[[0]], [[1]], [[2]]]
    assert expected(replay, "another", row=3, num_rows=4) == [[2]]
    assert expected(replay, "long", row=1, num_rows=4) == [] and ", where 1 have no answer" in replay.summary()


def test_of_a_packed_file_that_was_cut_off_what_can_be_read_is_replayed(tmp_path):
    lines = [record([number], prompt=f"prompt {number}") for number in range(2000)]
    path = tmp_path / "last.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode())[:-2000])
    assert expected(replay_of(path), "prompt 3") == [[3]]


def test_the_journal_next_to_an_output_has_the_tokens_unless_it_has_fewer_answers(tmp_path):
    lines = [batch(name, choices=[{"text": name}]) for name in "ab"]
    out = file_of(tmp_path, lines)

    def journal(*rows: int) -> None:  # with ids of which the last is cut off
        with_ids = Journal.open(JobFiles.of(out).journal)
        with_ids.append(packed(Head({}, 2)))
        for row in rows:
            line = json.dumps(lines[row]).encode()
            with_ids.append(packed(Answered(row, 0, 200, 1, 0, 2, line, [column([7, row]) + b"7"])))
        with_ids.close()

    journal(1)
    assert expected(replay_of(out), "", "b") == [TOKENIZER.encode("b", add_special_tokens=False)]
    journal(0, 0)
    assert [expected(replay_of(out), "", name) for name in "ab"] == [[[7, 0]], [[7, 1]]]
    out.unlink()
    assert expected(replay_of(out), "", "b") == expected(replay_of(JobFiles.of(out).journal), "", "b") == [[7, 1]]


# --- many answers -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(0, 2**64 - 1), max_size=3)), max_size=40))
def test_the_index_finds_the_last_answer_of_each_number_by_any_of_its_keys(answers):
    index = AnswerIndex()
    places: dict[int, int] = {}
    for place, (number, keys) in enumerate(answers):
        index.add(number, place, keys)
        places[number] = place
    index.sort()
    assert index.num_answers == len(places) and list(index.offsets()) == [places[each] for each in sorted(places)]
    for number, keys in answers:
        for key in keys:
            assert index.find(key, number)[0] == places[number]


def test_a_million_answers_take_24_bytes_each_and_the_same_prompt_again_and_again_is_no_search():
    index, count = AnswerIndex(), 1_000_000
    for number in range(count):
        index.add(number, 1000 * number, (number * 0x9E3779B97F4A7C15 % 2**64, 5 << 40))
    index.sort()
    assert sum(each.buffer_info()[1] * each.itemsize for each in (index._offsets, index._keys)) < 26 * count
    assert index.find(123 * 0x9E3779B97F4A7C15 % 2**64) == [123_000]
    assert index.find(5 << 40, 654_321)[0] == 654_321_000 and len(index.find(5 << 40)) < 10
