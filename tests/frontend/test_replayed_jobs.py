"""Jobs that replay an earlier run: how many lines are found there, and that no byte of an output changes."""

import json
from pathlib import Path
from typing import Any

from builders.batch_input import line as batch_line
from builders.shell import STAND_IN

from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.journal.journal import read_journal
from penstock.frontend.jobs.journal.records import Answered, unpacked
from penstock.frontend.replay.finder import AnswerFinder
from penstock.frontend.requests.prompts import ParsedPrompt

SYSTEM = {"role": "system", "content": "Be brief."}
ONE = {"role": "user", "content": "one"}
JOB_LINES = [
    *(json.dumps({"prompt": f"prompt {number}", "max_tokens": 5 + number % 4}) for number in range(6)),
    *(batch_line(f"chat {n}", messages=[ONE], max_tokens=9, n=n) for n in (1, 2)),
]


def test_a_job_that_replays_another_says_how_many_lines_it_found(shell, shell_model, tmp_path, monkeypatch):
    sent: dict[int, list[bytes]] = {}
    own = AnswerFinder.expected

    def watched(self: AnswerFinder, prompt: ParsedPrompt, name: Any = None, row: int = -1, num_rows: Any = None):
        sent[row] = own(self, prompt, name, row, num_rows)
        return sent[row]

    monkeypatch.setattr(AnswerFinder, "expected", watched)
    source, first, again = (tmp_path / f"{name}.jsonl" for name in ("in", "first", "again"))
    source.write_text("\n".join(JOB_LINES))
    words = ("--model", shell_model, *STAND_IN)
    assert shell.run("batch", source, first, *words).returncode == 0
    answered = [unpacked(found.record) for found in read_journal(JobFiles.of(first).journal)]
    lengths = {each.row: each.num_output for each in answered if isinstance(each, Answered)}
    for last, moment in ((first, 0), (JobFiles.of(first).journal, 1)):
        done = shell.run("batch", source, again.with_stem(f"again{moment}"), *words, "--replay", last)
        assert done.returncode == 0 and f"replay: 8 of 8 lines found in {last}" in done.stderr, done.stderr
        assert again.with_stem(f"again{moment}").read_bytes() == first.read_bytes()
        assert {row: sum(map(len, each)) // 4 for row, each in sent.items()} == lengths
    # A line that has changed is asked once more in the job that has answered the others.
    source.write_text("\n".join([*JOB_LINES[:-1], JOB_LINES[-1].replace("one", "two")]))
    done = shell.run("batch", source, first, *words, "--accept-change", "--replay", first)
    assert done.returncode == 0 and "replay: 1 of 1 lines found" in done.stderr, done.stderr


def write_batch(path: Path, name: str, *before: Any) -> Path:
    """Three conversations and a text under names that begin with this one."""
    chats = [{"messages": [*before, {"role": "user", "content": f"What is {number}?"}]} for number in range(3)]
    asked = [("/v1/completions", {"prompt": "Once"}), *(("/v1/chat/completions", chat) for chat in chats)]
    if name != "a":
        asked.reverse()
    lines = (batch_line(f"{name}{row}", url, **body, max_tokens=4) for row, (url, body) in enumerate(asked))
    path.write_text("\n".join(lines))
    return path


def test_a_batchs_lines_are_found_by_prompt_where_journal_or_receipts_know_it(shell, shell_model, tmp_path):
    words = ("--model", shell_model, *STAND_IN)
    source, first, certified = write_batch(tmp_path / "in.jsonl", "a"), tmp_path / "first", tmp_path / "certified"
    for out, further in ((first, ()), (certified, ("--receipt",))):
        assert shell.run("batch", source, out, *words, *further).returncode == 0
    renamed = write_batch(tmp_path / "renamed.jsonl", "b")
    briefly = write_batch(tmp_path / "briefly.jsonl", "c", SYSTEM)
    for last in (first, certified):
        JobFiles.of(last).journal.rename(tmp_path / f"{last.name}-moved.journal")
    for number, (lines, last, found) in enumerate((
        (renamed, tmp_path / "first-moved.journal", "4 of 4"),
        (briefly, tmp_path / "first-moved.journal", "4 of 4"),
        (renamed, certified, "4 of 4"),
        (briefly, certified, "1 of 4"),
        (renamed, first, "0 of 4"),
    )):  # fmt: skip
        done = shell.run("batch", lines, tmp_path / f"again{number}", *words, "--replay", last)
        assert done.returncode == 0 and f"replay: {found} lines found in {last}" in done.stderr, done.stderr
    assert f"none of the first 4 lines is found in {first}: it has other names, and its lines have no" in done.stderr


def test_a_job_is_refused_before_it_begins_if_its_earlier_run_cannot_be_replayed(shell, shell_model, tmp_path):
    source, last, out = (tmp_path / f"{name}.jsonl" for name in ("in", "last", "out"))
    source.write_text("\n".join(JOB_LINES))
    last.write_text('{"prompt": "one", "outputs": [{"text": "", "token_ids": [5]}]}\n')
    words = ("batch", source, out, "--model", shell_model, *STAND_IN, "--replay")
    for further, sentence in (
        ([tmp_path / "missing.jsonl"], "missing.jsonl cannot be read"),
        ([last, "--speculative-config", "off"], "can't be replayed: speculative_config=False turns drafts off."),
        ([last, "--record", tmp_path / "plans"], "can't be replayed: record=… records plans"),
    ):
        done = shell.run(*words, *further)
        assert done.returncode == 1 and sentence in done.stderr, done.stderr
        assert not out.exists() and not JobFiles.of(out).journal.exists()
