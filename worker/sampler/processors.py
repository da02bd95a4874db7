"""The user's logits processors: entry points of the group `penstock.logits_processors`, chosen by name.

An entry point is a function `make(vocab_size, arguments)`, called when a request enters a slot, with the request's
`logits_processors_args` for its name (None if absent). It returns None to skip the request, or a step
`step(tokens, num_prompt, logits)` that changes a row of logits in place: `tokens` are prompt and answer so far (numpy
int32, read only), `logits` is numpy float32. A step must keep no state between calls: a preempted request gets a new
one. An exception fails only its own request.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from ...protocol.errors import ConfigError
from ...protocol.options.plugins import LOGITS_PROCESSORS, installed, require_installed

Step = Callable[[numpy.ndarray, int, numpy.ndarray], None]
Make = Callable[[int, Any], Step | None]


class LogitsProcessor(NamedTuple):
    """One processor's step for one request."""

    name: str
    step: Step

    def apply(self, tokens: numpy.ndarray, num_prompt: int, logits: numpy.ndarray) -> None:
        """Run the step; raise RuntimeError with the processor's name."""
        try:
            if self.step(tokens, num_prompt, logits) is not None:
                raise TypeError("it returned something; a step changes the logits in place and returns None")
        except Exception as error:
            raise RuntimeError(f"The logits processor {self.name!r} failed: {_said(error)}") from error


class LogitsProcessors:
    """The logits processors of a tree, instantiated for each request."""

    def __init__(self, made: Mapping[str, Make]) -> None:
        self._made = made

    @classmethod
    def load(cls, names: Sequence[str]) -> "LogitsProcessors":
        """Import the entry points; an error ends the start."""
        require_installed("logits_processors", LOGITS_PROCESSORS, names)
        found = {entry.name: entry for entry in installed(LOGITS_PROCESSORS)}
        made: dict[str, Make] = {}
        for name in names:
            made[name] = found[name].load()
            if not callable(made[name]):
                raise ConfigError(f"logits_processors: {name!r} is {found[name].value}, which can't be called.")
        return cls(made)

    def steps(self, vocab_size: int, arguments: Mapping[str, Any] | None) -> list[LogitsProcessor]:
        """Make a request's steps; a processor that rejects its arguments fails the request when it first samples."""
        steps: list[LogitsProcessor] = []
        for name, make in self._made.items():
            try:
                step = make(vocab_size, (arguments or {}).get(name))
            except Exception as error:
                step = _raising(error)
            if step is not None:
                steps.append(LogitsProcessor(name, step))
        return steps


def _raising(error: Exception) -> Step:
    def step(tokens: numpy.ndarray, num_prompt: int, logits: numpy.ndarray) -> None:
        raise error

    return step


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
