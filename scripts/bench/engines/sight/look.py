"""Requests to engines that see: conversations about a picture each, completed together.

    {"do": "look", "requests": [{"picture": 7, "turns": ["What is it?"], "count": 1}, …]}

A picture is the seed of one of noise, given as plain pixels; it stands before the first turn's text, and turns are the
user's and the assistant's by turns. Pictures are made before the clock runs.
"""

import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from ..serve import ServedEngine, serve

WIDTH, HEIGHT = 1024, 768


@dataclass(frozen=True)
class Look:
    """One conversation: `pixels` is uint8 [height, width, 3]."""

    picture: int
    pixels: Any
    turns: list[str]
    count: int  # tokens wanted

    @property
    def messages(self) -> list[tuple[str, str]]:
        return [(("user", "assistant")[number % 2], text) for number, text in enumerate(self.turns)]


@dataclass(frozen=True)
class Seen:
    num_tokens: int
    num_prompt: int  # tokens


class SeeingEngine(ServedEngine):
    """The additional interface of an engine that sees."""

    def make_room_for(self, looks: list[Look]) -> None:
        """Allocate what other lengths need; its time doesn't count."""

    def num_encoded(self) -> int | None:
        """Pictures so far, if it says so."""

    @abstractmethod
    def look(self, looks: list[Look]) -> list[Seen]:
        """Complete the conversations greedily, never ending early."""


def picture(seed: int) -> Any:
    import numpy

    return numpy.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 3), numpy.uint8)


def serve_looks(engine: SeeingEngine) -> None:
    serve(engine, {"look": answer})


def answer(engine: SeeingEngine, requests: list[dict[str, Any]]) -> dict[str, Any]:
    looks = [Look(each["picture"], picture(each["picture"]), each["turns"], each["count"]) for each in requests]
    engine.make_room_for(looks)
    before = engine.num_encoded()
    start = time.perf_counter()
    seen = engine.look(looks)
    seconds = time.perf_counter() - start
    after = engine.num_encoded()
    return {
        "seconds": seconds,
        "num_tokens": [each.num_tokens for each in seen],
        "num_prompt": [each.num_prompt for each in seen],
        "num_encoded": None if before is None or after is None else after - before,
    }
