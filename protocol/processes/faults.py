"""Fault injection: named points where a test injects delay, death, an error, or NaN. Unused ones cost next to
nothing.

`PENSTOCK_FAULTS="worker.step=delay:0.01;engine.plan=die@3;worker.logits=nan@2"`: each entry is a point and an action;
`@n` limits it to the n-th visit in that process. Actions: `delay:SECONDS` (a random share of it, seeded by the point's
name), `until:PATH` (waits for that file), `hold:SECONDS` (holds the interpreter's lock, like a hanging native call),
`die` (SIGKILL to itself), `error` (raises), `memory` (a failed allocation), and `nan`, which the caller of `point`
carries out.
"""

import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

from ...records import dataclass
from ..errors import ConfigError
from ..fields.suggestion import suggestion

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass
class InjectedFault:
    action: str
    seconds: float
    path: str
    at_visit: int | None
    chance: random.Random
    visits: int = 0


# Tests check that the code passes exactly these points.
POINTS = (
    "worker.start", "engine.start", "detokenizer.start", "worker.allocate", "worker.adapter", "worker.step",
    "worker.logits", "worker.fetch", "worker.store", "engine.plan", "detokenizer.tokens",
)  # fmt: skip
ACTIONS = ("delay", "until", "hold", "die", "error", "memory", "nan")
_VARIABLE = "PENSTOCK_FAULTS"
_text = os.environ.get(_VARIABLE, "")


@cache
def _faults(text: str) -> dict[str, InjectedFault]:
    """Parsed at the first point, which every child passes where its exceptions already reach the caller."""
    return dict(map(_parsed, filter(None, text.split(";"))))


def _parsed(entry: str) -> tuple[str, InjectedFault]:
    name, _, what = entry.partition("=")
    what, _, visit = what.partition("@")
    action, _, argument = what.partition(":")
    for word, known in ((name, POINTS), (action, ACTIONS)):
        if word not in known:
            hint = suggestion(word, known)
            raise ConfigError(f"{_VARIABLE}: {word!r} in {entry!r} must be one of {', '.join(known)}.{hint}")
    try:
        path, seconds = (argument, 0.0) if action == "until" else ("", float(argument or 0))
        return name, InjectedFault(action, seconds, path, int(visit) if visit else None, random.Random(name))
    except ValueError:
        raise ConfigError(f"{_VARIABLE}: {entry!r} must be POINT=ACTION, ACTION:ARGUMENT or ACTION@VISIT.") from None


def is_planted(name: str) -> bool:
    """Whether something may happen at that point in this process."""
    return bool(_text) and name in _faults(_text)


def passing(name: str, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, which passes a named point first; the function itself where nothing can happen there."""
    if not _text:
        return function

    def passed(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        point(name)
        return function(*arguments, **named)

    return passed


def point(name: str) -> str | None:
    """Pass a named point. Returns the action, since the caller carries out `nan`."""
    if not _text or (fault := _faults(_text).get(name)) is None:
        return None
    fault.visits += 1
    if fault.at_visit is not None and fault.visits != fault.at_visit:
        return None
    if fault.action == "delay":
        time.sleep(fault.seconds * fault.chance.random())
    elif fault.action == "until":
        while not os.path.exists(fault.path):
            time.sleep(0.005)
    elif fault.action == "hold":
        print(f"The lock is held at {name}", file=sys.stderr, flush=True)
        ctypes.PyDLL(None).sleep(int(fault.seconds))
    elif fault.action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.action == "error":
        raise RuntimeError(f"Injected fault at {name}.")
    elif fault.action == "memory":
        raise MemoryError(f"Injected allocation failure at {name}.")
    return fault.action
