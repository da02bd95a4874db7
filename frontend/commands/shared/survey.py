"""Runs a worker's survey of this machine in a process of its own, so that torch is never imported here.

It has a time limit: a driver that hangs must not hang the command that looks for it.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from ....protocol.errors import EngineDeadError
from ....protocol.processes.exit_status import describe_status
from ....protocol.processes.process import inherited_path, run_to_end, start_process
from ....protocol.survey import Survey

_SECONDS = 30
_SECONDS_WITH_TORCH = 180  # its first import from a cold disk takes long


def ask_survey(folders: Sequence[Path] = (), *, with_torch: bool = False, without_weights: bool = False) -> Survey:
    flags = [*(["--torch"] if with_torch else []), *(["--without-weights"] if without_weights else [])]
    command = [sys.executable, "-P", "-m", "penstock.worker.survey", *flags]
    seconds = _SECONDS_WITH_TORCH if with_torch else _SECONDS
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(inherited_path())}
    try:
        done = run_to_end(partial(start_process, "survey", [*command, *map(str, folders)], env=environment), seconds)
    except TimeoutError:
        what = "Importing torch and asking it for devices" if with_torch else "Looking at the models"
        why = "a disk or a driver that hangs is the likely cause"
        raise EngineDeadError(f"{what} took more than {seconds} s; {why}.") from None
    try:
        # The last line: a library may have said something before.
        return msgspec.json.decode(done.output.splitlines()[-1], type=Survey)
    except (IndexError, msgspec.DecodeError):
        words = done.errors.decode(errors="replace").strip().splitlines()
        last = words[-1] if words else "it said nothing"
        raise EngineDeadError(f"The worker's survey {describe_status(done.status)}: {last}") from None
