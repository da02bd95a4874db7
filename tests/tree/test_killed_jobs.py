"""A job whose processes are killed at any moment makes the files that an uninterrupted one makes without drafts."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from builders.mixed_requests import ADD_FORMAT, ADD_TOOLS
from builders.pooled_models import embedding_model
from builders.seeing_model import as_url, picture
from builders.watching import module_of, wait_until

from penstock import PenstockError
from penstock.frontend.daemon.background import daemon_status, start_daemon, stop_daemon
from penstock.frontend.jobs.job import Job, JobOptions
from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.journal.records import Died, JobState

BOUND = 180
OPTIONS = {"max-model-len": "512", "kv-cache-memory": "64MiB", "max-num-seqs": "6"}
DRAFTING, DRAFTLESS = ({"speculative-config": json.dumps({"method": method})} for method in ("suffix", "off"))
MODULES = {"worker": "penstock.worker", "engine": "penstock.engine"}
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


def lines(model: str, count: int) -> Iterator[str]:
    """Every kind of line; the model thinks before it answers the chats. One in 50 is wrong. A line's samples differ."""
    for number in range(count):
        drawn = {"temperature": 1.0, "seed": number}
        question = f"What is {number} + {number % 7}?"
        chat = {"messages": [{"role": "user", "content": question}], "max_tokens": 24}
        long = {"ignore_eos": True, "max_tokens": 40 + number % 60}
        shown = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": shade(number)}}]
        kinds: list[tuple[str, dict[str, object]]] = [
            (CHAT, chat),
            (CHAT, chat | long | drawn | {"n": 2, "logprobs": True, "top_logprobs": 2}),
            (COMPLETION, {"prompt": question, **long, "logprobs": 1}),
            (CHAT, chat | {"response_format": ADD_FORMAT, "max_tokens": 60}),
            (COMPLETION, {"prompt": question, **long, **drawn, "n": 3, "stop": ["9"]}),
            ("/v1/responses", {"input": question, "ignore_eos": True, "max_output_tokens": 40}),
            ("/v1/messages", chat | long),
            (CHAT, chat | {"tools": ADD_TOOLS, "tool_choice": "required", "max_tokens": 60})
            if model == "pocket"
            else (CHAT, chat | long | {"messages": [{"role": "user", "content": shown}]}),
        ]
        url, body = kinds[number % len(kinds)]
        wrong = {"colour": 1} if number % 50 == 5 else {}
        yield json.dumps({"custom_id": f"line {number}", "method": "POST", "url": url, "body": body | wrong})


def shade(number: int) -> str:
    return as_url(picture(number % 5))


class Command:
    """`penstock batch` in a process of its own, with a tree of its own or with the daemon at an address."""

    name = "batch"
    goes_on_within_answers = True

    def __init__(self, source: Path, out: Path, model: str, address: Path | None = None) -> None:
        self.source, self.files, self.model, self.address = source, JobFiles.of(out), model, address

    def start(self, num_threads: int, *, is_slow: bool = True, drafts: bool = True) -> "subprocess.Popen[str]":
        words = [sys.executable, "-m", "penstock", self.name, str(self.source), str(self.files.output), "--quiet"]
        words += ["--model", self.model, "--commit-seconds", "0.05"]
        if self.address is None:
            options = {**OPTIONS, **(DRAFTING if drafts else DRAFTLESS), "num-threads": str(num_threads)}
            words += [word for name, value in options.items() for word in (f"--{name}", value)]
        else:
            words += ["--connect", str(self.address)]
        faults = SLOW if is_slow else {}
        return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, **faults})

    def finish(self, run: "subprocess.Popen[str]") -> str:
        told = run.communicate(timeout=BOUND)[1]
        assert run.returncode == 3, told
        return told

    def state(self) -> JobState:
        return self.files.state() if self.files.journal.exists() else JobState()

    def made(self) -> tuple[bytes, bytes]:
        return self.files.output.read_bytes(), self.files.errors.read_bytes()


class Embedding(Command):
    """`penstock embed` likewise."""

    name = "embed"
    goes_on_within_answers = False


SLOW = {"PENSTOCK_FAULTS": "worker.step=delay:0.02"}


@contextmanager
def daemon_at(address: Path, model: str) -> Iterator[None]:
    words = [model, *(word for name, value in {**OPTIONS, **DRAFTING}.items() for word in (f"--{name}", value))]
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SLOW.items():
            environment.setenv(name, value)
        start_daemon([*words, "--no-http"], address)
    try:
        yield
    finally:
        with suppress(PenstockError):  # it was killed
            stop_daemon(address, 0.0)


class Interrupted:
    """A job of which one process after another is killed."""

    def __init__(self, command: Command, count: int, seed: int) -> None:
        self.command, self.count = command, count
        self.chosen = random.Random(seed)
        self.has_continued = False
        roles = ("job", "job", "worker", "engine")
        self.roles = roles if command.address is None else (*roles, "daemon")
        # Those whose death needs no answer that is half done.
        self.whole_roles = MODULES if command.goes_on_within_answers else self.roles

    def run(self, num_lines: int) -> None:
        with ExitStack() as daemons:
            self._serve(daemons)
            run = self.command.start(1)
            for number in range(self.count):
                role = self.chosen.choice(self.roles)
                self._wait(run, 1 + (num_lines * 3 // 4) * number // self.count, role)
                assert run.poll() is None, run.communicate()[1]
                if role in MODULES:
                    self._kill_model(run.pid, MODULES[role])
                    continue
                if role == "daemon":
                    os.kill(daemon_status(self.command.address).pid, signal.SIGKILL)
                    assert "daemon" in run.communicate(timeout=BOUND)[1]
                    self._serve(daemons)
                else:
                    run.kill()
                    run.communicate(timeout=BOUND)
                self.has_continued |= bool(self.command.state().said)
                run = self.command.start(1 + number % 2)
            self.command.finish(run)

    def _serve(self, daemons: ExitStack) -> None:
        if (address := self.command.address) is not None:
            daemons.enter_context(daemon_at(address, self.command.model))

    def _wait(self, run: "subprocess.Popen[str]", num_done: int, role: str) -> None:
        """Wait until so many lines are done, and some answers half done."""

        def is_time() -> bool:
            state = self.command.state()
            return state.num_done >= num_done and (bool(state.said) or role in self.whole_roles)

        wait_until(lambda: is_time() or run.poll() is not None, "lines", BOUND)

    def _kill_model(self, job: int, module: str) -> None:
        owner = job if self.command.address is None else daemon_status(self.command.address).pid
        for process in psutil.Process(owner).children(recursive=True):
            if module_of(process.pid) == module:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def check_kills(folder: Path, num_lines: int, count: int, seed: int, model: str = "pocket", *, daemon: bool) -> None:
    (folder / "in.jsonl").write_text("\n".join(lines(model, num_lines)))
    check_same(Command, folder / "in.jsonl", "", model, num_lines, count, seed, daemon=daemon)


def check_same(kind: type[Command], source: Path, suffix: str, model: str, num_lines: int, count: int, seed: int, *,
               daemon: bool = False) -> Command:  # fmt: skip
    (own := source.parent / "own").mkdir(mode=0o700)
    whole, cut = (kind(source, source.parent / f"{name}{suffix}", model) for name in ("whole", "cut"))
    cut.address = own / "socket" if daemon else None
    whole.finish(whole.start(2, is_slow=False, drafts=False))
    interrupted = Interrupted(cut, count, seed)
    interrupted.run(num_lines)
    is_same = cut.made() == whole.made()
    assert is_same, f"{cut.files.output} and {whole.files.output} differ"  # showing how takes minutes
    assert interrupted.has_continued or not cut.goes_on_within_answers, "no answer was continued in its middle"
    return cut


def test_a_job_killed_twice_makes_the_bytes_of_one_that_was_not(tmp_path):
    """Its own process, then its worker."""
    check_kills(tmp_path, 16, 2, seed=8, daemon=False)


@pytest.mark.long
@pytest.mark.parametrize("model, daemon", [("pocket", False), ("pocket", True), ("pocket-sight", True)])
def test_a_job_killed_twenty_times_makes_the_bytes_of_one_that_was_not(tmp_path, model, daemon):
    check_kills(tmp_path, 200, 20, 2, model, daemon=daemon)


def test_a_job_of_vectors_that_is_killed_makes_the_bytes_of_one_that_was_not(tmp_path):
    """Of texts of all lengths, some too long for the model."""
    model = str(embedding_model(tmp_path / "model", pooling_mode_lasttoken=True))
    source = tmp_path / "in.txt"
    source.write_text("\n".join("a hen " * (number % 210) + str(number) for number in range(220)))
    assert check_same(Embedding, source, ".npy", model, 220, 1, seed=5).made()[1], "no text failed"


def test_a_line_that_the_model_has_died_of_twice_is_computed_alone_and_then_fails(stand_in, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(f'"prompt {number}"' for number in range(6)))
    (whole, died) = (Job(source, tmp_path / name, JobOptions({"max_tokens": 3})) for name in ("whole", "died"))
    with whole, died:
        answered: list[str] = []
        for job, deaths in ((whole, []), (died, [[1, 2, 4], [2, 4], [4]])):
            job.begin(stand_in._session)
            for rows in deaths:
                job.append(Died(rows, "a cause"))
            job.run(stand_in._session, lambda row, output: answered.append(output.error_msg or row.prompt))
            job.finish()
    assert answered[6:10] and set(answered[6:10]) == {f"prompt {number}" for number in (0, 1, 3, 5)}
    assert answered[10] == "prompt 2" and answered[11].endswith("at last with this line alone: a cause")
    lines = (tmp_path / "whole").read_text().splitlines()
    assert (tmp_path / "died").read_text().splitlines() == [*lines[:4], lines[5]]
    assert json.loads((tmp_path / "died.errors.jsonl").read_text())["custom_id"] == "4"
