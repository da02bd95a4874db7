"""`penstock batch`: lines a second with a worker that computes nothing, and what a job and its journal cost.

    scripts/benchmark jobs --lines 1000000
    scripts/benchmark jobs --lines 0 --rounds 9

First plain prompts, plain prompts as chats and OpenAI's batch lines go through the stand-in worker: lines a second, CPU
microseconds a line of each process, and by how much the memory of each has grown in the second half. Then a model of
random weights answers a file by `LLM.batch` and in the way of `penstock generate --input`, in turns; of a job's
seconds, those within its journal are shown. `--lines 0` and `--rounds 0` leave out the one or the other.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import psutil

from penstock import LLM, SamplingParams
from penstock.frontend.jobs.journal.journal import Journal
from penstock.frontend.rows.lines import read_lines
from penstock.frontend.rows.prompts import from_json_lines
from penstock.frontend.rows.records import as_json
from penstock.frontend.rows.rendering import Rendering

from ..harness import Quantization, ShapeName, compare, median, random_model, random_weights, seconds_of
from ..machine import on_cpu
from .overhead import processes

ANSWER = 4  # tokens, of the stand-in's


def run(
    lines: int = 20_000, rounds: int = 5, requests: int = 256, prompt: int = 64, answer: int = 64, rows: int = 32,
    quantization: Quantization = "int8", shape: ShapeName = "0.6b",
) -> Any:  # fmt: skip
    found: dict[str, Any] = {}
    with TemporaryDirectory() as place:
        folder = Path(place)
        if lines:
            found |= {kind: through_stand_in(folder, kind, lines) for kind in ("raw", "plain", "chat")}
        if rounds:
            options = random_weights(quantization, max_num_seqs=rows)
            with random_model(shape) as model, LLM(model, **options) as llm:
                found |= against_generate(llm, folder, requests, prompt, answer, rounds)
    return found


# --- lines a second ---------------------------------------------------------------------------------------------------


def through_stand_in(folder: Path, kind: str, count: int) -> dict[str, Any]:
    source = folder / f"{kind}.jsonl"
    with source.open("w") as file:
        file.writelines(line_of(kind, number) for number in range(count))
    with LLM("pocket", load_format="stand-in", quiet=True) as llm:
        llm.generate(["warm"] * 64, SamplingParams(max_tokens=1), use_tqdm=False)
        before = {role: on_cpu(pid) for role, pid in processes(llm).items()}
        memory = Memory(llm, count)
        seconds = seconds_of(lambda: answered(llm, source, folder / "answers", raw=kind == "raw", memory=memory))
        cpu = {role: (on_cpu(pid) - before[role]) * 1e6 / count for role, pid in processes(llm).items()}
    shown = ", ".join(f"{role} {each:.0f}" for role, each in cpu.items())
    grown = ", ".join(f"{role} {each:+.1f}" for role, each in memory.grown.items())
    rate = count / seconds
    print(f"{kind}: {rate:,.0f} lines/s; CPU us a line: {shown}; MiB in the second half: {grown}", flush=True)
    return {"lines a second": rate, "CPU us a line": cpu, "MiB grown": memory.grown}


def line_of(kind: str, number: int) -> str:
    question = f"What is {number} + {number % 97}?"
    if kind != "chat":
        return json.dumps(question) + "\n"
    messages = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": question}]
    body = {"model": "pocket", "messages": messages, "max_tokens": ANSWER}
    line = {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line) + "\n"


class Memory:
    """By how many MiB each process has grown since half of the lines were done."""

    def __init__(self, llm: LLM, count: int) -> None:
        self.llm, self.half, self.num_records = llm, count // 2, 0
        self.middle: dict[str, float] = {}

    def note(self) -> None:
        self.num_records += 1
        if self.num_records == self.half:
            self.middle = self._now()

    @property
    def grown(self) -> dict[str, float]:
        return {role: self.at_end[role] - before for role, before in self.middle.items()}

    def end(self) -> None:
        self.at_end = self._now()

    def _now(self) -> dict[str, float]:
        return {role: psutil.Process(pid).memory_info().rss / 2**20 for role, pid in processes(self.llm).items()}


def answered(llm: LLM, source: Path, output: Path, *, raw: bool, memory: Memory) -> None:
    append = Journal.append

    def noted(journal: Journal, record: bytes) -> None:
        memory.note()
        append(journal, record)

    with mock.patch.object(Journal, "append", noted):
        batch(llm, source, output, ANSWER, raw=raw)
    memory.end()


def batch(llm: LLM, source: Path, output: Path, tokens: int, *, raw: bool) -> None:
    """A job from its beginning."""
    for path in (output, output.with_name(output.name + ".journal")):
        path.unlink(missing_ok=True)
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    result = llm.batch(source, output, params, use_tqdm=False, raw=raw)
    if result.num_failed:
        raise RuntimeError(result.errors.read_text().splitlines()[0])


# --- against generate -------------------------------------------------------------------------------------------------


def against_generate(llm: LLM, folder: Path, requests: int, prompt: int, answer: int, rounds: int) -> dict[str, Any]:
    source, output = folder / "ids.jsonl", folder / "answers"
    with source.open("w") as file:
        for number in range(requests):
            file.write(json.dumps([(31 * number + each) % 4000 + 10 for each in range(prompt)]) + "\n")
    shares: list[float] = []

    def job() -> float:
        with journal_seconds() as spent:
            seconds = seconds_of(lambda: batch(llm, source, output, answer, raw=True))
        shares.append(spent[0] / seconds)
        return seconds

    ways = {"generate": lambda: seconds_of(lambda: generate(llm, source, output, answer)), "job": job}
    results = compare(f"{requests} lines of {prompt} tokens in, {answer} out", ways, rounds, "s")
    print(f"of a job's seconds, its journal takes {100 * median(shares):.2f} %")
    return {"against generate": results, "share of the journal": median(shares)}


def generate(llm: LLM, source: Path, output: Path, tokens: int) -> None:
    """As `penstock generate --input --output --format jsonl` does once the model is loaded."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    rendering = Rendering(llm._session, is_raw=True, system=None)
    with source.open("rb") as lines, output.open("w") as file:
        rows = list(from_json_lines(read_lines(lines, str(source)), params))
        outputs = llm.generate_iter(map(rendering.prompt, rows), (row.params for row in rows), ordered=False)
        for number, answer in enumerate(outputs):
            file.write(as_json(number, rows[number], answer))


@contextmanager
def journal_seconds() -> Iterator[list[float]]:
    """Seconds within the journal's calls."""
    spent, is_inside = [0.0], [False]

    def timed(method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if is_inside[0]:
                return method(*arguments)
            start, is_inside[0] = time.perf_counter(), True
            try:
                return method(*arguments)
            finally:
                spent[0] += time.perf_counter() - start
                is_inside[0] = False

        return call

    names = ("append", "commit", "close")
    with mock.patch.multiple(Journal, **{name: timed(getattr(Journal, name)) for name in names}):
        yield spent
