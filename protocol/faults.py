"""Named points where a test injects delay, death, an error, or NaN; they cost one dictionary look-up otherwise.

`PENSTOCK_FAULTS="worker.step=delay:0.01;engine.plan=die@3;worker.logits=nan@2"`: at a point, an action, and with `@n`
only at its n-th visit in that process (without it at every visit). Actions: `delay:SECONDS` (a random share of it,
seeded by the point's name), `hold:SECONDS` (the interpreter's lock, as a native call that hangs), `die` (SIGKILL to
itself), `error` (raises), `memory` (a failed allocation), and `nan`, which the caller of `point` acts on.
Knows nothing of what happens at a point.
"""

import ctypes
import os
import random
import signal
import sys
import time
from dataclasses import dataclass


@dataclass
class Fault:
    action: str
    argument: float
    at_visit: int | None
    chance: random.Random
    visits: int = 0


def _parsed(text: str) -> dict[str, Fault]:
    faults: dict[str, Fault] = {}
    for entry in filter(None, text.split(";")):
        name, _, what = entry.partition("=")
        what, _, visit = what.partition("@")
        action, _, argument = what.partition(":")
        faults[name] = Fault(action, float(argument or 0), int(visit) if visit else None, random.Random(name))
    return faults


_faults = _parsed(os.environ.get("PENSTOCK_FAULTS", ""))


def point(name: str) -> str | None:
    """Pass a named point. Returns the action where the caller is the one to act (`nan`)."""
    if not _faults or (fault := _faults.get(name)) is None:
        return None
    fault.visits += 1
    if fault.at_visit is not None and fault.visits != fault.at_visit:
        return None
    if fault.action == "delay":
        time.sleep(fault.argument * fault.chance.random())
    elif fault.action == "hold":
        print(f"The lock is held at {name}", file=sys.stderr, flush=True)
        ctypes.PyDLL(None).sleep(int(fault.argument))
    elif fault.action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.action == "error":
        raise RuntimeError(f"Injected fault at {name}.")
    elif fault.action == "memory":
        raise MemoryError(f"Injected allocation failure at {name}.")
    return fault.action
