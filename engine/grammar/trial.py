"""A process in which a grammar is tried before the engine compiles it: what hangs, overflows or dies, does so here.

`Trial` is the engine's side, this module run by its name the other. Knows nothing of models: the trial's vocabulary are
the 256 bytes.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ...protocol.bounded_process import BoundedProcess, Bounds, JobDiedError, serve
from ...protocol.guided import Grammar

BOUNDS = Bounds(cpu_seconds=5, memory_bytes=1 << 30, wall_seconds=60.0)
_STACK_BYTES = 256 << 20  # an address space, taken as it is used


class Trial:
    """One process at a time, started when it is needed."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self._process = BoundedProcess("grammar", __name__, bounds)

    def fault(self, grammar: Grammar) -> str | None:
        """What is wrong with a grammar, in a sentence; raises `JobDiedError` where trying it ends the process."""
        return self._process.ask(msgspec.msgpack.encode(grammar)).decode() or None


def too_much(error: JobDiedError) -> str:
    return f"It cannot be compiled: it {error}. Use a simpler one."


# --- the process -----------------------------------------------------------------------------------------------------


def _load() -> Callable[[bytes], bytes]:
    from .matcher import tried

    threading.stack_size(_STACK_BYTES)
    thread = ThreadPoolExecutor(1)  # the main one's stack is the user's choice
    thread.submit(int).result()  # it has its stack before the process's memory is counted

    def fault(job: bytes) -> str:
        try:
            return tried(msgspec.msgpack.decode(job, type=Grammar)) or ""
        except BaseException as error:  # the library panics where it should refuse, and a panic is no Exception
            return f"It cannot be compiled ({type(error).__name__}: {str(error)[:200]})."

    return lambda job: thread.submit(fault, job).result().encode()


if __name__ == "__main__":
    serve(_load)
