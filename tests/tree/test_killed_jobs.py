"""A job whose processes are killed at any moment makes the files that an uninterrupted one makes."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from builders.watching import wait_until

from penstock.frontend.jobs.job import Job, JobOptions
from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.records import Died, JobState

BOUND = 180
SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA}}


def lines() -> Iterator[str]:
    for number in range(60):
        question = f"What is {number} + {number % 7}?"
        messages = [{"role": "user", "content": question}]
        long = {"ignore_eos": True, "max_tokens": 40 + number}
        chat = {"messages": messages, "max_tokens": 24}
        kinds: list[tuple[str, dict[str, object]]] = [
            ("/v1/chat/completions", chat),
            ("/v1/chat/completions", chat | long | {"n": 2, "logprobs": True, "top_logprobs": 2}),
            ("/v1/completions", {"prompt": question, **long, "logprobs": 1}),
            ("/v1/chat/completions", chat | {"response_format": FORMAT}),
            ("/v1/completions", {"prompt": question, **long, "n": 3, "stop": ["9"]}),
            ("/v1/chat/completions", chat | {"colour": 1} if number == 5 else chat),
        ]
        url, body = kinds[number % len(kinds)]
        yield json.dumps({"custom_id": f"line {number}", "method": "POST", "url": url, "body": body})


class Command:
    """`penstock batch` in a process of its own."""

    def __init__(self, source: Path, out: Path) -> None:
        self.source, self.files = source, JobFiles.of(out)

    def start(self, num_threads: int, *, is_slow: bool = True) -> "subprocess.Popen[str]":
        words = [sys.executable, "-m", "penstock", "batch", str(self.source), str(self.files.output)]
        words += ["--model", "pocket", "--max-model-len", "512", "--kv-cache-memory", "64MiB", "--max-num-seqs", "6"]
        words += ["--num-threads", str(num_threads), "--commit-seconds", "0.05", "--quiet"]
        faults = {"PENSTOCK_FAULTS": "worker.step=delay:0.01"} if is_slow else {}
        return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, **faults})

    def finish(self, run: "subprocess.Popen[str]") -> str:
        told = run.communicate(timeout=BOUND)[1]
        assert run.returncode == 3, told
        return told

    def state(self) -> JobState:
        return self.files.state() if self.files.journal.exists() else JobState()

    def made(self) -> tuple[bytes, bytes]:
        return self.files.output.read_bytes(), self.files.errors.read_bytes()


def killed(command: Command, run: "subprocess.Popen[str]", num_done: int, role: str) -> None:
    """Kill the job's process in the midst of answers, or one that it has started, once so many lines are done."""

    def is_time() -> bool:
        state = command.state()
        return state.num_done >= num_done and (bool(state.said) or role != "job")

    wait_until(lambda: is_time() or run.poll() is not None, BOUND, "lines")
    if role == "job":
        run.kill()
        run.communicate(timeout=BOUND)
        return
    for process in psutil.Process(run.pid).children(recursive=True):
        if f"penstock.{role}" in " ".join(process.cmdline()):
            process.send_signal(signal.SIGKILL)


def check_kills(folder: Path, count: int, seed: int) -> None:
    source = folder / "in.jsonl"
    source.write_text("\n".join(lines()))
    whole, cut = Command(source, folder / "whole"), Command(source, folder / "cut")
    whole.finish(whole.start(2, is_slow=False))
    chosen = random.Random(seed)
    run, has_continued = cut.start(1), False
    for number in range(count):
        role = chosen.choice(["job", "job", "worker"])
        killed(cut, run, 1 + 45 * number // count, role)
        if role == "job":
            has_continued |= bool(cut.state().said)
            run = cut.start(1 + number % 2)
    cut.finish(run)
    assert cut.made() == whole.made()
    assert has_continued, "no answer was continued in its middle"


def test_a_job_killed_five_times_makes_the_bytes_of_one_that_was_not(tmp_path):
    check_kills(tmp_path, 5, seed=1)


@pytest.mark.long
def test_a_job_killed_twenty_times_makes_the_bytes_of_one_that_was_not(tmp_path):
    check_kills(tmp_path, 20, seed=2)


def test_a_line_that_the_model_has_died_of_twice_is_computed_alone_and_then_fails(stand_in, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(f'"prompt {number}"' for number in range(6)))
    (whole, died) = (Job(source, tmp_path / name, JobOptions({"max_tokens": 3})) for name in ("whole", "died"))
    with whole, died:
        answered: list[str] = []
        for job, deaths in ((whole, []), (died, [[1, 2, 4], [2, 4], [4]])):
            job.begin(stand_in._session)
            for rows in deaths:
                job._append(Died(rows, "a cause"))
            job.run(stand_in._session, lambda row, output: answered.append(output.error_msg or row.prompt))
            job.finish()
    assert answered[6:10] and set(answered[6:10]) == {f"prompt {number}" for number in (0, 1, 3, 5)}
    assert answered[10] == "prompt 2" and answered[11].endswith("at last with this line alone: a cause")
    lines = (tmp_path / "whole").read_text().splitlines()
    assert (tmp_path / "died").read_text().splitlines() == [*lines[:4], lines[5]]
    assert json.loads((tmp_path / "died.errors.jsonl").read_text())["custom_id"] == "4"
