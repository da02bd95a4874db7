"""A process in which a grammar is tried before the engine compiles it: what hangs, overflows or dies, does so here.

`Trial` is the engine's side, this module run by its name the other. The process bounds itself, by limits that the
kernel keeps, and ends with whoever started it; it stays for the next grammar, and after a death another takes its
place. Knows nothing of models: the trial's vocabulary are the 256 bytes.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO

import msgspec

from ...protocol.child import begin
from ...protocol.descriptors import is_readable
from ...protocol.guided import Grammar
from ...protocol.process import ChildProcess, start_child
from ...protocol.process_limits import bound_memory, bound_time

_CPU_SECONDS = 5  # a grammar
MEMORY_BYTES = 1 << 30  # beyond what the process has at its start
_STACK_BYTES = 256 << 20  # of those; an address space, taken as it is used
_WALL_SECONDS = 60  # where the process gets no processor


class Trial:
    """One process at a time, started when it is needed."""

    def __init__(self, cpu_seconds: int = _CPU_SECONDS) -> None:
        self._cpu_seconds = cpu_seconds
        self._process: ChildProcess | None = None

    def fault(self, grammar: Grammar) -> str | None:
        """What is wrong with a grammar, in a sentence."""
        process = self._process = self._process or self._started()
        try:
            _send(process.popen.stdin, msgspec.msgpack.encode(grammar))
            answer = _received(process.popen.stdout, _WALL_SECONDS)
        except OSError:  # it has ended, and the pipe is closed
            answer = None
        if answer is None:
            return self._end()
        return answer.decode() or None

    def _end(self) -> str:
        process, self._process = self._process, None
        process.close()
        for pipe in (process.popen.stdin, process.popen.stdout):
            with suppress(OSError):
                pipe.close()
        if process.status == -signal.SIGXCPU:
            why = f"it takes more than {self._cpu_seconds} s of processor time"
        elif process.status == -signal.SIGKILL:
            why = f"it takes more than {_WALL_SECONDS} s"
        else:
            why = f"it takes more than {MEMORY_BYTES >> 20} MiB, or breaks the compiler"
        return f"It cannot be compiled: {why}. Use a simpler one."

    def _started(self) -> ChildProcess:
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return start_child("grammar", __name__, [str(self._cpu_seconds)], **streams)


def _send(pipe: BinaryIO, content: bytes) -> None:
    pipe.write(len(content).to_bytes(4, "little") + content)
    pipe.flush()


def _received(pipe: BinaryIO, seconds: float | None = None) -> bytes | None:
    """The next message; None when there will be none."""
    if seconds is not None and not is_readable(pipe.fileno(), seconds):
        return None
    if len(head := pipe.read(4)) < 4:
        return None
    length = int.from_bytes(head, "little")
    content = pipe.read(length)
    return content if len(content) == length else None


# --- the process -----------------------------------------------------------------------------------------------------


def main(cpu_seconds: int) -> None:
    from .matcher import tried

    bound_memory(MEMORY_BYTES)
    threading.stack_size(_STACK_BYTES)
    while (content := _received(sys.stdin.buffer)) is not None:
        grammar = msgspec.msgpack.decode(content, type=Grammar)
        bound_time(cpu_seconds)
        with ThreadPoolExecutor(1) as thread:  # the main one's stack is the user's choice
            _send(sys.stdout.buffer, thread.submit(_fault, tried, grammar).result().encode())


def _fault(tried: Callable[[Grammar], str | None], grammar: Grammar) -> str:
    try:
        return tried(grammar) or ""
    except BaseException as error:  # the library panics where it should refuse, and a panic is no Exception
        return f"It cannot be compiled ({type(error).__name__}: {str(error)[:200]})."


if __name__ == "__main__":
    main(*map(int, begin()))
