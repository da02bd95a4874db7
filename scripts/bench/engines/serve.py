"""The engine's side of a benchmark: a process that reads commands from stdin and answers on stdout, one JSON a line.

    {"do": "prepare", "checkpoint": …, "folder": …, "quantization": …}   write the format that the engine reads
    {"do": "load", "folder": …, "quantization": …, "threads": …, …}      make it ready for requests
    {"do": "run", "requests": [[[ids], count], …]}                       complete all, arriving together, greedily
    {"do": "close"}

Every answer has `seconds`; that of `run` the tokens each request got. A fault is answered by `error` and the
traceback goes to stderr. Whatever an engine prints goes to stderr as well. Knows no engine.
"""

import json
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

Request = tuple[list[int], int]  # prompt, tokens wanted


@dataclass(frozen=True)
class Settings:
    """The settings that every engine gets when it loads."""

    quantization: str  # the precision class
    threads: int
    max_model_len: int
    max_num_seqs: int
    kv_gib: int  # for keys and values


class ServedEngine(ABC):
    """The interface of an engine's file. The engine itself is imported in the methods."""

    @abstractmethod
    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        """Write what `load` reads, from a checkpoint in bfloat16 safetensors."""

    @abstractmethod
    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        """Become ready for requests; returns what is worth noting."""

    def make_room(self, requests: list[Request]) -> None:  # noqa: B027  (most need none)
        """Allocate what other lengths need; its time doesn't count."""

    @abstractmethod
    def run(self, requests: list[Request]) -> list[list[int]]:
        """Complete the requests greedily, never ending early; returns the tokens of each."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""


def serve(engine: ServedEngine, further: dict[str, Callable[..., dict[str, Any]]] | None = None) -> None:
    """`further` commands are called as these are: with the engine and what the caller sent."""
    answers = _own_stdout()
    commands = {"prepare": _prepare, "load": _load, "run": _run} | (further or {})
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        if name == "close":
            break
        start = time.perf_counter()
        try:
            answer = commands[name](engine, **command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answer.setdefault("seconds", time.perf_counter() - start)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    engine.close()


def _own_stdout() -> TextIO:
    """The pipe to the caller; what anything in this process prints from now on goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _prepare(engine: ServedEngine, checkpoint: str, folder: str, quantization: str) -> dict[str, Any]:
    engine.prepare(Path(checkpoint), Path(folder), quantization)
    return {}


def _load(engine: ServedEngine, folder: str, **settings: Any) -> dict[str, Any]:
    return engine.load(Path(folder), Settings(**settings))


def _run(engine: ServedEngine, requests: list[list[Any]]) -> dict[str, Any]:
    typed = [(ids, count) for ids, count in requests]
    engine.make_room(typed)
    start = time.perf_counter()
    tokens = engine.run(typed)
    return {"seconds": time.perf_counter() - start, "tokens": tokens}
