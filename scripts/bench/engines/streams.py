"""One engine's side of `scripts/benchmark streams`: streamed answers, and prompts that are computed beside them.

    python -m bench.engines.streams ENGINE MODEL COURSE       # the course as JSON; prints the figures as JSON

It runs in the engine's own Python. Each engine offers the four methods of `Driver`; `hold` is the course that all take.
The drivers of other engines are in streams_of_others.py.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from ..models import SHAPES

STREAMS, ROOM, STREAM_PROMPT = 8, 20_000, 64  # tokens of an answer, and of its prompt
ROOM_OF_STREAM = 4096  # in llama.cpp's cache
STREAMS_BESIDE_PICTURES, PICTURES = 4, 4
SETTLING = 30.0  # seconds in which Penstock's memory is touched in the background


def ids(count: int) -> list[int]:
    return [random.randrange(10, SHAPES["0.6b"]["vocab_size"]) for _ in range(count)]


@dataclass(frozen=True)
class Course:
    """The course of a measurement, the same for every engine."""

    quantization: str
    prompt: int  # tokens
    heard: float  # seconds that the streams are heard by themselves
    known: int | None  # tokens of the prompt that are computed beforehand; None: a whole prompt is, and nothing of this
    watched: float  # seconds of the prompts beside the streams
    arrivals: int = 1  # prompts beside the streams
    every: float = 1.0  # seconds between two of them

    def prompts(self) -> tuple[list[int], list[list[int]]]:
        """The prompt that is computed alone, and those next to the streams."""
        first = ids(self.prompt if self.known is None else max(self.known, STREAM_PROMPT))
        known = first[: self.known or 0]
        return first, [known + ids(self.prompt - len(known)) for _ in range(self.arrivals)]


class Gaps:
    """Times between tokens, by what happened meanwhile."""

    def __init__(self) -> None:
        self.phase = "start"
        self.seconds: dict[str, list[float]] = {}
        self._last: dict[Any, float] = {}

    def note(self, stream: Any) -> None:
        now = time.perf_counter()
        if stream in self._last:
            self.seconds.setdefault(self.phase, []).append(now - self._last[stream])
        self._last[stream] = now

    def figures(self, alone: float, beside: float, computed: int | None) -> dict[str, float]:
        found = {"prompt alone, s": alone, "all prompts beside streams, s": beside}
        if computed is not None:
            found["tokens of it computed at the end"] = computed
        for phase in ("before", "beside", "after"):
            gaps = self.seconds[phase]
            found |= {f"{phase}: median, ms": median(gaps) * 1e3, f"{phase}: p99, ms": quantiles(gaps, n=100)[98] * 1e3}
            found[f"{phase}: longest, ms"] = max(gaps) * 1e3
        for phase in ("before", "after"):
            found[f"p99 beside : {phase}"] = found["beside: p99, ms"] / found[f"{phase}: p99, ms"]
        return {name: round(value, 2) for name, value in found.items()}


class Driver(ABC):
    def __init__(self, model: str, course: Course, gaps: Gaps) -> None:
        self.model, self.course, self.gaps = model, course, gaps

    @abstractmethod
    def complete(self, prompts: list[list[int]], watched: float = float("inf")) -> float:
        """Seconds from the first prompt's arrival until all have a token, or `watched`, when they are given up."""

    @abstractmethod
    def begin_streams(self) -> None: ...

    @abstractmethod
    def run(self, seconds: float) -> None:
        """Let the streams go on."""

    def computed(self, tokens: list[int]) -> int | None:
        """How many tokens of the prompt have been computed, where the engine can tell."""
        return None


def hold(driver: Driver) -> dict[str, float]:
    course, gaps = driver.course, driver.gaps
    first, beside_streams = course.prompts()
    alone = driver.complete([first])
    print(f"The prompt alone took {alone:.1f} s.", file=sys.stderr)
    driver.begin_streams()
    driver.run(3.0)
    gaps.phase = "before"
    driver.run(course.heard)
    gaps.phase = "beside"
    beside = driver.complete(beside_streams, course.watched)
    gaps.phase = "after"
    driver.run(course.heard)
    gaps.phase = "end"
    return gaps.figures(alone, beside, driver.computed(beside_streams[-1]))


class Penstock(Driver):
    streams, room = STREAMS, ROOM

    def __init__(self, model: str, course: Course, gaps: Gaps) -> None:
        super().__init__(model, course, gaps)
        from penstock import AsyncLLM

        form = None if course.quantization == "none" else course.quantization
        longest = max(course.prompt, self.room) + 128
        options = {"load_format": "dummy", "quantization": form, "max_model_len": longest, "quiet": True}
        # Random weights repeat themselves as no model does: drafts would give a dozen tokens a step.
        options["speculative_config"] = False
        self._loop = asyncio.new_event_loop()
        self._listening: list[asyncio.Task[None]] = []

        async def opened() -> Any:
            return AsyncLLM(model, kv_cache_memory="8GiB", **options)

        self.llm = self.wait(opened())
        self.run(SETTLING)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    @staticmethod
    def params(count: int) -> Any:
        from penstock import SamplingParams

        return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)

    def complete(self, prompts: list[list[int]], watched: float = float("inf")) -> float:
        async def arrive(number: int, tokens: list[int]) -> None:
            await asyncio.sleep(number * self.course.every)
            await self.llm.generate(tokens, self.params(1))

        async def all_of_them() -> None:
            await asyncio.gather(*(arrive(number, tokens) for number, tokens in enumerate(prompts)))

        start = time.perf_counter()
        with contextlib.suppress(TimeoutError):
            self.wait(asyncio.wait_for(all_of_them(), min(watched, 1e6)))
        return time.perf_counter() - start

    def begin_streams(self) -> None:
        async def listen(number: int) -> None:
            async for _ in self.llm.stream(ids(STREAM_PROMPT), self.params(self.room)):
                self.gaps.note(number)

        self._listening = [self._loop.create_task(listen(number)) for number in range(self.streams)]

    def run(self, seconds: float) -> None:
        self.wait(asyncio.sleep(seconds))

    def computed(self, tokens: list[int]) -> int:
        """The tokens of it that the prefix cache has."""
        if any(task.done() for task in self._listening):
            print("A stream ended before the prompt did.", file=sys.stderr)
        for task in self._listening:
            task.cancel()
        before = self.wait(self.llm.stats()).cached_tokens
        self.complete([tokens], 1.0)
        return self.wait(self.llm.stats()).cached_tokens - before


class BesidePictures(Penstock):
    """Questions about pictures in place of the prompt, one after another, beside fewer streams."""

    streams, room = STREAMS_BESIDE_PICTURES, 8192 - STREAM_PROMPT

    def __init__(self, model: str, course: Course, gaps: Gaps) -> None:
        super().__init__(model, course, gaps)
        self._seeds = iter(range(10**6))
        self.complete([])  # records its calls

    def complete(self, prompts: list[list[int]], watched: float = float("inf")) -> float:
        """Seconds that a picture takes."""
        from .sight.look import picture

        start = time.perf_counter()
        for _ in range(PICTURES):
            image = {"type": "image", "image": picture(next(self._seeds))}
            content = [image, {"type": "text", "text": "What is in the picture?"}]
            [output] = self.wait(self.llm.chat([{"role": "user", "content": content}], self.params(1)))
            assert output.error_msg is None, output.error_msg
        return (time.perf_counter() - start) / PICTURES

    def computed(self, tokens: list[int]) -> None:
        return None


def driver_of(engine: str) -> type[Driver]:
    from .streams_of_others import LlamaCpp, Vllm

    drivers: dict[str, type[Driver]] = {
        "penstock": Penstock, "penstock beside pictures": BesidePictures, "vllm": Vllm, "llama.cpp": LlamaCpp,
    }  # fmt: skip
    return drivers[engine]


if __name__ == "__main__":
    engine, model, course = sys.argv[1:]
    print(json.dumps(hold(driver_of(engine)(model, Course(**json.loads(course)), Gaps()))), flush=True)
    os._exit(0)  # what is left of the streams isn't waited for
