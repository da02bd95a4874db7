"""The user's logits processors: entry points of the group `penstock.logits_processors`, chosen by name.

An entry point is a function `make(vocab_size, arguments)`, called when a request enters a slot, with the request's
`logits_processors_args` for its name (None if absent). It returns None to skip the request, or a step
`step(tokens, num_prompt, logits)` that changes a row of logits in place or returns another one: `tokens` are prompt and
answer so far (numpy int32, read only), `logits` is numpy float32. A step must keep no state between calls: a preempted
request gets a new one. An exception fails only its own request.

A step that annotates `tokens` or `logits` with torch.Tensor gets tensors (tokens as int64), and so does one with an
attribute `takes_tensors = True`. Only then is torch imported here.
"""

import inspect
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy

from ...kernels.arrays import Array
from ...protocol.errors import ConfigError
from ...protocol.options.plugins import LOGITS_PROCESSORS, installed, require_installed

_LOG = logging.getLogger(__name__)

Step = Callable[[Any, int, Any], Any]
Make = Callable[[int, Any], Step | None]


class LogitsProcessor(NamedTuple):
    """One processor's step for one request."""

    name: str
    step: Step

    def apply(self, tokens: Array, num_prompt: int, logits: Array) -> None:
        """Run the step; raise RuntimeError with the processor's name."""
        try:
            with _said_if_torch_is_imported(self.name):
                returned = self.step(tokens, num_prompt, logits[:])  # a view: its form is the step's to change
            if returned is not None:
                with numpy.errstate(over="ignore"):  # beyond float32 is infinite
                    logits[:] = _returned_row(returned, logits)
            if not logits.max() < numpy.inf:
                raise ValueError("it left NaN or infinity among the logits")
        except BaseException as error:  # SystemExit, too, is the request's
            raise RuntimeError(_failure(self.name, error)) from error


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
            try:
                with _said_if_torch_is_imported(name):
                    made[name] = found[name].load()
            except ModuleNotFoundError as error:
                raise ConfigError(_failure(name, error)) from error
            if not callable(made[name]):
                raise ConfigError(f"logits_processors: {name!r} is {found[name].value}, which can't be called.")
        return cls(made)

    def steps(self, vocab_size: int, arguments: Mapping[str, Any] | None) -> list[LogitsProcessor]:
        """Make a request's steps; a processor that rejects its arguments fails the request when it first samples."""
        steps: list[LogitsProcessor] = []
        for name, make in self._made.items():
            try:
                with _said_if_torch_is_imported(name):
                    step = make(vocab_size, (arguments or {}).get(name))
                if step is not None:
                    step = _on_arrays(step, _asks(step, make))
            except BaseException as error:
                step = _raising(error)
            if step is not None:
                steps.append(LogitsProcessor(name, step))
        return steps


def _on_arrays(step: Step, asks: "_Asks") -> Step:
    """The step, called with arrays; it gets the tensors that it asks for, of logits in the same memory."""
    if not any(asks):
        return step

    def with_tensors(tokens: Array, num_prompt: int, logits: Array) -> Any:
        from ...kernels.torch.arrays import tensor_of  # imports torch

        # A copy, because no tensor is read only. torch's own indices are int64.
        history = tensor_of(tokens.astype(numpy.int64)) if asks.tokens else tokens
        return step(history, num_prompt, tensor_of(logits) if asks.logits else logits)

    return with_tensors


class _Asks(NamedTuple):
    """What a step wants as tensors."""

    tokens: bool
    logits: bool


def _asks(step: Step, make: Make) -> _Asks:
    said = [said for each in (step, make) if (said := _says(each)) is not None]
    return _Asks(*(bool(said[0]),) * 2) if said else _annotated(step)


def _says(step: Any) -> bool | None:
    """The attribute `takes_tensors` of a step, or of what it is a partial call or a method of."""
    said = getattr(step, "takes_tensors", None)
    inner = step.func if isinstance(step, partial) else getattr(step, "__self__", None)
    return said if said is not None or inner is None else _says(inner)


def _annotated(step: Step) -> _Asks:
    """What a step's annotations ask for; a parameter without one is as the other."""
    try:
        tokens, _, logits = _annotations(step)
    except ValueError:  # of a builtin, or of other than three parameters
        return _Asks(False, False)
    named = [re.search(r"Tensor\b", text) is not None for text in (tokens, logits)]
    return _Asks(named[0] or (not tokens and named[1]), named[1] or (not logits and named[0]))


def _annotations(step: Step) -> list[str]:
    """The annotations of a step's three parameters, as text; "" if there is none."""
    try:
        signature = inspect.signature(step, eval_str=True)
    except Exception:  # names that only type checkers see, or that aren't imported
        signature = inspect.signature(step)
    found: list[str] = []
    for parameter in signature.parameters.values():
        has_any = parameter.annotation is not inspect.Parameter.empty
        text = inspect.formatannotation(parameter.annotation) if has_any else ""
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            found += [text] * 3
        elif parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            found.append(text)
    return found[:3]


def _returned_row(returned: Any, logits: Array) -> Array:
    """The logits that a step returned instead of changing them in place: an array, a tensor or a list."""
    row = returned
    if hasattr(returned, "detach"):  # a tensor, on whatever device
        row = (returned.float() if returned.is_floating_point() else returned).detach().cpu()
    row = numpy.asarray(row)
    is_number = row.dtype != numpy.bool_ and numpy.can_cast(row.dtype, numpy.float32, "same_kind")
    if row.shape != logits.shape or not is_number:
        raise TypeError(
            f"it returned {type(returned).__name__} of shape {row.shape} and {row.dtype}; a step changes its logits in "
            f"place and returns None, or returns {len(logits):,} numbers"
        )
    return row


@contextmanager
def _said_if_torch_is_imported(name: str) -> Iterator[None]:
    """Log it if a processor brings torch into a process that does without."""
    had_torch, start = "torch" in sys.modules, time.perf_counter()
    yield
    if not had_torch and (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # a second pool of threads would compete with the kernels' for cores
        _LOG.info("The logits processor %r uses torch, imported in %.1f s", name, time.perf_counter() - start)


def _raising(error: BaseException) -> Step:
    def step(tokens: Array, num_prompt: int, logits: Array) -> None:
        raise error

    return step


def _failure(name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return f"The logits processor {name!r} needs torch, which isn't installed: pip install 'penstock[torch]'."
    return f"The logits processor {name!r} failed: {type(error).__name__}: {error}"
