"""What `bench_streams.py` measures of any engine, and the times between tokens that come of it."""

import random
import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from bench_models import SHAPES

STREAM_PROMPT = 64  # tokens
SHAPE = SHAPES["0.6b"]


def ids(count: int) -> list[int]:
    return [random.randrange(10, SHAPE["vocab_size"]) for _ in range(count)]


@dataclass(frozen=True)
class Course:
    """What is measured, of any engine."""

    quantization: str
    prompt: int  # tokens
    heard: float  # seconds that the streams are heard by themselves
    known: int | None  # tokens of the prompt that are computed beforehand; None: a whole prompt is, and nothing of this
    watched: float  # seconds of the prompt beside the streams

    def prompts(self) -> tuple[list[int], list[int]]:
        """What is computed alone, and the prompt beside the streams."""
        first = ids(self.prompt if self.known is None else max(self.known, STREAM_PROMPT))
        known = first[: self.known or 0]
        return first, known + ids(self.prompt - len(known))


class Gaps:
    """Times between tokens, by what happened meanwhile."""

    def __init__(self) -> None:
        self.phase = "start"
        self.seconds: dict[str, list[float]] = {}
        self._last: dict[Any, float] = {}

    def hear(self, stream: Any) -> None:
        now = time.perf_counter()
        if stream in self._last:
            self.seconds.setdefault(self.phase, []).append(now - self._last[stream])
        self._last[stream] = now

    def figures(self, alone: float, beside: float, computed: int | None) -> dict[str, float]:
        found = {"prompt alone, s": alone, "prompt beside streams, s": beside}
        if computed is not None:
            found["tokens of it computed at the end"] = computed
        for phase in ("before", "beside", "after"):
            gaps = self.seconds[phase]
            found |= {f"{phase}: median, ms": median(gaps) * 1e3, f"{phase}: p99, ms": quantiles(gaps, n=100)[98] * 1e3}
            found[f"{phase}: longest, ms"] = max(gaps) * 1e3
        for phase in ("before", "after"):
            found[f"p99 beside : {phase}"] = found["beside: p99, ms"] / found[f"{phase}: p99, ms"]
        return {name: round(value, 2) for name, value in found.items()}
