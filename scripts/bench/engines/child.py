"""An engine in a process of its own: asked, stopped while others run, measured, ended.

While an engine is not asked, its whole tree is stopped (SIGSTOP), so that it can burn nothing beside the one that
runs. Knows the protocol of `serve.py` and nothing of what engines do.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

SCRIPTS = Path(__file__).resolve().parents[2]
CLOSE_SECONDS = 20.0
LOG_LINES = 12
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY")
_PR_SET_PDEATHSIG = 1


class EngineFault(RuntimeError):
    """An engine could not do what it was asked; the message holds its own words."""


class Child:
    """One engine's process tree."""

    def __init__(self, name: str, python: str, module: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.born = time.perf_counter()
        with log.open("ab") as file:
            self._popen = subprocess.Popen(
                [python, "-m", *module.split()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=log.parent,  # what engines leave in the current folder stays with their logs
                env=environment(),
                preexec_fn=_end_with_parent,
            )

    def ask(self, command: str, timeout: float = 900.0, **fields: Any) -> dict[str, Any]:
        """Send a command and return its answer; raises `EngineFault` where it failed, died or took too long."""
        if self._popen.poll() is None:
            self._popen.stdin.write((json.dumps({"do": command, **fields}) + "\n").encode())
            self._popen.stdin.flush()
        answer = self._answer(timeout)
        if "error" in answer:
            raise EngineFault(f"{self.name} failed at {command!r}: {answer['error']}\n{self._last_words()}")
        return answer

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def pause(self) -> None:
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    @contextlib.contextmanager
    def awake(self) -> Iterator["Child"]:
        """Let the tree run for as long as the block does."""
        self._resume()
        try:
            yield self
        finally:
            self.pause()

    def memory(self) -> dict[str, float]:
        """GB of the whole tree: resident pages, and the same with shared pages counted in parts (PSS)."""
        resident = proportional = 0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                usage = process.memory_full_info()
                resident += usage.rss
                proportional += usage.pss
        return {"rss": resident / 1e9, "pss": proportional / 1e9}

    def close(self) -> None:
        """Ask, then kill whatever of the tree is left."""
        self._resume()
        tree = self._tree()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._popen.stdin.write(b'{"do": "close"}\n')
            self._popen.stdin.close()
            self._popen.wait(CLOSE_SECONDS)
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._popen.wait()
        self._popen.stdout.close()

    def _resume(self) -> None:
        for process in reversed(self._tree()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._popen.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _answer(self, timeout: float) -> dict[str, Any]:
        ready, _, _ = select.select([self._popen.stdout], [], [], timeout)
        if not ready:
            raise EngineFault(f"{self.name} gave no answer within {timeout:.0f} s.\n{self._last_words()}")
        line = self._popen.stdout.readline()
        if not line:
            raise EngineFault(f"{self.name} ended with status {self._popen.wait()}.\n{self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join([f"The end of {self.log}:", *(f"  {line}" for line in lines)])


def environment() -> dict[str, str]:
    """The caller's, less what would settle an engine's threads behind its back."""
    kept = {name: value for name, value in os.environ.items() if name not in THREAD_SETTINGS}
    return {**kept, "PYTHONPATH": str(SCRIPTS), "TOKENIZERS_PARALLELISM": "false"}


def _end_with_parent() -> None:
    """Called in the child, before it becomes the engine: a benchmark that is killed leaves none behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
