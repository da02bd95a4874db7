"""Ranks that are processes of their own, without a tree: each runs one program, and prints what it found as JSON."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def found_by_ranks(program: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """What each rank's process printed; it is given its arguments as JSON."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(own)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        for own in arguments
    ]
    try:
        return [json.loads(process.communicate(timeout=120)[0]) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
