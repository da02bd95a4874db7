"""A script or a command that starts a tree in a process of its own, in surroundings of the test's choice.

The tree computes nothing. Knows which processes belong to it, by the folder of their sockets.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders.watching import is_running

STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 256}
WORDS = ["--load-format", "stand-in", "--max-model-len", "1024", "--num-gpu-blocks-override", "256"]
ANSWERS = f"""
from penstock import LLM, SamplingParams
with LLM("pocket", **{STAND_IN!r}) as llm:
    [output] = llm.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True))
    print(len(output.outputs.token_ids), "tokens", flush=True)
"""
# Other users' processes may read the interpreter, wherever it lies, and nothing else that they couldn't.
_AS_USER = ["--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
_VARIABLES = ("PENSTOCK_RUNTIME_DIR", "PENSTOCK_LOG_DIR", "PENSTOCK_CACHE", "XDG_STATE_HOME")
SECONDS = 120

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be another user, with util-linux"
)


def run(code: str = ANSWERS, **options: Any) -> "subprocess.CompletedProcess[str]":
    """A script; `options` are subprocess.run's."""
    return finished([sys.executable, "-c", code], **options)


def command(*words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return finished([sys.executable, "-m", "penstock", *words], **options)


def finished(words: Sequence[str], unbuffered: str = "", **options: Any) -> "subprocess.CompletedProcess[str]":
    # As at a terminal, whatever runs these tests; what a buffer holds is part of what they are about.
    options["env"] = {**options.get("env", os.environ), "PYTHONUNBUFFERED": unbuffered}
    if not {"stdout", "stderr"} & options.keys():
        options["capture_output"] = True
    elif "stdout" not in options:
        options["stdout"] = subprocess.PIPE
    return subprocess.run(words, text=True, timeout=SECONDS, **options)


def as_user(
    user: int, code: str = ANSWERS, cwd: Path = Path("/"), **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a script as that user, in the given environment alone."""
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", *_AS_USER, sys.executable, "-c", code]
    return finished(words, cwd=cwd, env={"PATH": os.defpath, "PYTHONPATH": python_path(), **environment})


def python_path() -> str:
    return os.pathsep.join(filter(None, sys.path))


def without_variables(**environment: str) -> Mapping[str, str]:
    """This process's environment without the folders that the tests choose for Penstock."""
    kept = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    return {**kept, **environment}


def processes_of(runtime: Path) -> list[int]:
    """Children of trees whose sockets lie under that folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(word.startswith(f"{runtime}/") for word in process.cmdline()) and is_running(process.pid):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            pass
    return found
