"""Tries a grammar (`engine/grammar/matcher.py`) in a process of its own: if it hangs or crashes, it does so there.

`Trial` is the engine's side; the process runs this module. It knows no model: the trial's vocabulary is the 256 bytes.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ...protocol.parameters.guided import Grammar
from ...protocol.processes.bounded_process import BoundedProcess, Bounds, JobDiedError, serve

BOUNDS = Bounds(cpu_seconds=5, memory_bytes=1 << 30, wall_seconds=60.0)
_STACK_BYTES = 256 << 20  # of address space; memory is allocated as it is used


class Trial:
    """The caller's side: one process at a time, started when it is needed."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self._process = BoundedProcess("grammar", __name__, bounds)

    def fault(self, grammar: Grammar) -> str | None:
        """What is wrong with a grammar, in a sentence; raises `JobDiedError` if trying it ends the process."""
        return self._process.ask(msgspec.msgpack.encode(grammar)).decode() or None


def too_much(error: JobDiedError) -> str:
    return f"It cannot be compiled: it {error}. Use a simpler one."


# --- the process -----------------------------------------------------------------------------------------------------


def _load() -> Callable[[bytes], bytes]:
    from .matcher import tried

    threading.stack_size(_STACK_BYTES)
    thread = ThreadPoolExecutor(1)  # the main thread's stack size is set by the user
    thread.submit(int).result()  # allocates its stack before the process's memory is bounded

    def fault(job: bytes) -> str:
        try:
            return tried(msgspec.msgpack.decode(job, type=Grammar)) or ""
        except BaseException as error:  # the library panics instead of refusing, and a panic is not an Exception
            return f"It cannot be compiled ({type(error).__name__}: {str(error)[:200]})."

    return lambda job: thread.submit(fault, job).result().encode()


if __name__ == "__main__":
    serve(_load)
