"""Finds the engines that take part in a sitting: those that are installed and know the precision class."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import Engine
from .child import Child

FIND = """
import importlib.metadata, importlib.util, sys
if importlib.util.find_spec(sys.argv[1]) is None: sys.exit(3)
print(importlib.metadata.version(sys.argv[2]))
"""
CORES = len(os.sched_getaffinity(0))


@dataclass
class Contender:
    engine: Engine
    python: str
    version: str
    child: Child | None = None
    loaded: dict[str, Any] = field(default_factory=dict)  # what it said of itself

    @property
    def name(self) -> str:
        return self.engine.name


def installed(engines: Iterable[Engine], quantization: str, python: Sequence[str]) -> list[Contender]:
    """The engines that can be imported and know the class; others are named and left out.

    `python` holds NAME=PATH: which Python an engine has, by default this one. Engines are ended on the way out.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    pythons, found = dict(pair.split("=", 1) for pair in python), []
    for engine in engines:
        own = pythons.get(engine.name.split()[0], sys.executable)
        if quantization not in engine.formats:
            continue
        words = [own, "-c", FIND, engine.imports, engine.distribution]
        asked = subprocess.run(words, capture_output=True, text=True)
        if asked.returncode:
            print(f"{engine.name}: not installed for {own}; --python NAME=PATH names another", file=sys.stderr)
        else:
            found.append(Contender(engine, own, asked.stdout.strip()))
    return found


def models_folder(name: str) -> Path:
    """The folder in which a scenario keeps its models by default."""
    return Path(tempfile.gettempdir()) / f"penstock-bench-{name}-{os.getuid()}"
