"""`penstock batch` against others who answer the same lines, and what each has left after SIGKILL at half its time.

    scripts/benchmark job-peers Qwen/Qwen3-0.6B --python vllm=/path/to/its/python ray=/path/to/its/python

MODEL is a folder or a hub id that all of them can read. vLLM's `run_batch`, a plain loop over transformers and a
`ray.data` job with transformers take part where they are installed. Each answers all lines once, greedily and with the
same number of tokens; then once more, killed with all of its processes at half of that time, and started again. Shown
are lines a second and Penstock's ratio, the lines that the kill has left, the seconds of the second start, and how many
answers differ from those of the first run.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from penstock.frontend.jobs.job_files import JobFiles

QUESTIONS = ("Name three rivers of {}.", "What is {} plus 17?", "Write a sentence about {}.", "Who would visit {}?")


PROGRAMS = Path(__file__).parents[1] / "engines" / "jobs"
FILES = ("{source}", "{output}", "{model}")


@dataclass(frozen=True)
class Way:
    """One way to answer a file of lines."""

    name: str
    python: str  # its name in --python
    imports: str
    words: tuple[str, ...]  # behind its Python


OURS = Way("penstock batch", "penstock", "penstock", ("-m", "penstock", "batch", *FILES[:2], "--model", FILES[2]))
WAYS = (
    OURS,
    Way("vllm run_batch", "vllm", "vllm", (
        "-m", "vllm.entrypoints.openai.run_batch", "-i", "{source}", "-o", "{output}", "--model", "{model}"
    )),
    Way("transformers", "transformers", "transformers", (str(PROGRAMS / "transformers_loop.py"), *FILES)),
    Way("ray.data", "ray", "ray", (str(PROGRAMS / "ray_job.py"), *FILES)),
)  # fmt: skip


def run(model: str, lines: int = 500, tokens: int = 64, python: tuple[str, ...] = ()) -> Any:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # a child is ended on the way out
    pythons = dict(pair.split("=", 1) for pair in python)
    found: dict[str, Any] = {}
    with TemporaryDirectory() as place:
        source = Path(place, "in.jsonl")
        source.write_text("".join(line_of(number, model, tokens) for number in range(lines)))
        for way in WAYS:
            own = pythons.get(way.python, sys.executable)
            if subprocess.run([own, "-c", f"import {way.imports}"], capture_output=True).returncode:
                print(f"{way.name}: not installed for {own}; --python {way.python}=PATH names another", flush=True)
                continue
            found[way.name] = measured(way, own, source, model)
            print(row(way.name, found), flush=True)
    return found


def line_of(number: int, model: str, tokens: int) -> str:
    messages = [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)].format(number)}]
    body = {"model": model, "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    line = {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line) + "\n"


def measured(way: Way, python: str, source: Path, model: str) -> dict[str, Any]:
    outputs = [source.with_name(f"{way.python}-{name}") for name in ("whole", "cut")]
    whole, cut = ([python, *(word.format(source=source, output=output, model=model) for word in way.words)]
                  for output in outputs)  # fmt: skip
    seconds = seconds_of(whole)
    killed_at_half(cut, seconds / 2)
    left = lines_left(way, outputs[1])
    try:
        again = seconds_of(cut)
    except SystemExit as error:  # of another engine, which is told in its row
        if way is OURS:
            raise
        print(error, flush=True)
        return {"seconds": seconds, "lines": len(answers(outputs[0])), "left": left}
    first, second = (answers(output) for output in outputs)
    differing = sum(first[name] != second.get(name) for name in first)
    return {"seconds": seconds, "lines": len(first), "left": left, "second start": again, "differing": differing}


def seconds_of(command: list[str]) -> float:
    start = time.perf_counter()
    # Elsewhere than in this checkout, whose folders `python -m` would find before libraries of their names.
    done = subprocess.run(command, capture_output=True, text=True, cwd=gettempdir())
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return time.perf_counter() - start


def killed_at_half(command: list[str], seconds: float) -> None:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=gettempdir()
    )
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    finally:  # also where the benchmark itself is to end
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def lines_left(way: Way, output: Path) -> int:
    """Lines that need not be answered again, or that somebody could save by hand."""
    if way is OURS:
        return JobFiles.of(output).state().num_done if JobFiles.of(output).journal.exists() else 0
    return len(answers(output))


def answers(output: Path) -> dict[str, Any]:
    """The whole lines of a file, or of those in a folder, by `custom_id`."""
    files = sorted(output.glob("*.json")) if output.is_dir() else [output] if output.exists() else []
    found = {}
    for file in files:
        for line in file.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                answer = json.loads(line)
                found[answer["custom_id"]] = answer["text"] if "text" in answer else content_of(answer["response"])
    return found


def content_of(response: dict[str, Any]) -> str:
    return response["body"]["choices"][0]["message"]["content"]


def row(name: str, found: dict[str, Any]) -> str:
    own = found[name]
    ours = found.get(OURS.name, own)
    ratio = own["seconds"] / ours["seconds"]
    if "second start" not in own:
        return (
            f"{name}: {own['lines'] / own['seconds']:.2f} lines/s (Penstock {ratio:.2f} x); {own['left']:,} of "
            f"{own['lines']:,} left by the kill, and the second start fails"
        )
    return (
        f"{name}: {own['lines'] / own['seconds']:.2f} lines/s (Penstock {ratio:.2f} x); {own['left']:,} of "
        f"{own['lines']:,} left by the kill, {own['second start']:.1f} s for the second start after "
        f"{own['seconds']:.1f} s for all, {own['differing']:,} answers differ"
    )
