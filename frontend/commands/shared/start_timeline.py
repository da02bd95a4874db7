"""The start of a model as a timeline, process by process: from this command's own start to the first token, or to the
first numbers of a model that gives these.

The tree's processes write the parts of their starts to a trace (`protocol/processes/trace.py`).
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from ....protocol.parameters.pooling import PoolingParams
from ....protocol.parameters.sampling import SamplingParams
from ....protocol.processes.trace import START
from ...llm import LLM

_FRONT_END = "front end"


class Part(NamedTuple):
    """A part of a process's start, in milliseconds of the machine's monotonic clock."""

    process: str
    name: str
    start: float
    end: float
    processor: float | None  # time on processors, of all its threads; None if it wasn't measured

    def line(self, zero: float) -> str:
        processor = "" if self.processor is None else f" {self.processor:9.0f}"
        figures = f"{self.start - zero:6.0f} {self.end - zero:6.0f} {self.end - self.start:6.0f}{processor}"
        return f"{self.process:<13}{self.name:<13} {figures}".rstrip()


def timed_start(model: str) -> str:
    """Start the model, wait for the first of what it gives, and return the timeline."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        with LLM(model, trace=trace, quiet=True) as llm:
            before = time.monotonic_ns() / 1e6
            name = _first(llm)
            first = Part(_FRONT_END, name, before, time.monotonic_ns() / 1e6, None)
        with open(trace) as file:
            parts = [*_parts(file.read()), first]
    return "\n".join(_lines(parts, first))


def _first(llm: LLM) -> str:
    """Wait for the first of what the model gives; return its name."""
    if llm._session.pooled is not None:
        llm.encode(["What is 2 + 3?"], PoolingParams(truncate_prompt_tokens=-1), use_tqdm=False)
        return "first numbers"
    answer = llm.stream("What is 2 + 3?", SamplingParams(temperature=0, max_tokens=1))
    next(answer)
    answer.close()
    return "first token"


def _parts(text: str) -> Iterator[Part]:
    events = json.loads(text.rstrip().rstrip(",") + "]")
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    for event in events:
        if event.get("cat") == START:
            start, end = event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3
            yield Part(names[event["pid"]], event["name"], start, end, event["args"]["processor_ms"])


def _lines(parts: list[Part], first: Part) -> Iterator[str]:
    zero = min(part.start for part in parts)
    processes: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.start):
        processes.setdefault(part.process, []).append(part)
    yield f"The {first.name} came {first.end - zero:.0f} ms after this command's start. All figures are milliseconds."
    yield f"\n{'process':<13}{'part':<13}{'from':>7}{'to':>7}{'took':>7}{'processor':>10}"
    for of_process in processes.values():
        yield ""
        yield from (part.line(zero) for part in of_process)
