"""How tests watch process trees: who belongs to one, waiting with a bound, and sharing one that some tests end."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from penstock import LLM, AsyncLLM
from penstock.frontend.session.opening import OpeningSession
from penstock.frontend.session.threads import Threads
from penstock.frontend.session.tree.vital_signs import is_stopped
from penstock.protocol.processes.runtime_directory import runtime_base

# What the product bounds by a few seconds, on a machine that has much else to do: nothing comes to its end by waiting
# longer, and no test asks how fast.
BOUND_SECONDS = 60.0
Shared = TypeVar("Shared")


def tree_processes(llm: LLM) -> dict[str, int]:
    return {child.role: child.popen.pid for child in llm._session.transport.tree.children}


def loop_face(llm: LLM) -> AsyncLLM:
    """An `AsyncLLM` over the tree of an `LLM`, which outlives it."""
    face = AsyncLLM.__new__(AsyncLLM)
    face._model, face._opening = "", OpeningSession()
    face._threads = face._media = Threads("Questions", 4, patience=float("inf"))
    face._opening._opened.set_result(llm._session)
    face._opening._started.set_result(None)
    return face


def wait_until(holds: Callable[[], bool], what: str, seconds: float = BOUND_SECONDS) -> None:
    """Look again and again, the less often the longer it has lasted: what takes seconds is seen a twentieth later."""
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what}"
        time.sleep(min(0.1, max(0.005, waited / 20)))


def bounded(call: Callable[[], Any], seconds: float = BOUND_SECONDS) -> Any:
    """What a call returns or raises; a failed assertion if it does neither in time."""
    found: list[Callable[[], Any]] = []

    def run() -> None:
        try:
            result = call()
            found.append(lambda: result)
        except BaseException as error:
            found.append(lambda error=error: raise_again(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, f"the caller was left waiting for {seconds} s"
    return found[0]()


def raise_again(error: BaseException) -> None:
    raise error


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def module_of(pid: int) -> str:
    """Which of our modules a process was started to run; "" where it is none of our children, or has gone.

    A whole word of its command: paths may hold any part of these names.
    """
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return ""
    return next((word for word in words if word.startswith("penstock.")), "")


def stop(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        wait_until(lambda: is_stopped(pid), f"{pid} is stopped")  # noqa: B023


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """They stand still within the block, and go on afterwards."""
    try:
        stop(*pids)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def assert_gone(pids: Iterable[int]) -> None:
    pids = list(pids)
    wait_until(lambda: not any(map(is_running, pids)), f"the end of {pids}")


def runtime_folders() -> set[str]:
    return {path.name for path in runtime_base().glob("t*")}


def write_unnoticed(path: Path, content: bytes) -> None:
    """Write over a file in place, and leave it its old times. Only the time of its last change tells."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(content)

    def has_changed() -> bool:  # that time is a clock's, of which a tick takes milliseconds
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return path.stat().st_ctime_ns != before.st_ctime_ns

    wait_until(has_changed, "another time of change")


@contextmanager
def shared_while(
    lives: Callable[[Shared], bool], start: Callable[[], AbstractContextManager[Shared]]
) -> Iterator[Callable[[], Shared]]:
    """A function that returns what the tests share; it starts another one where a test has ended the last."""
    with ExitStack() as stack:
        found: list[Shared] = []

        def given() -> Shared:
            if not found or not lives(found[-1]):
                found.append(stack.enter_context(start()))
            return found[-1]

        yield given
