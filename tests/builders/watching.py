"""How tests watch process trees: who belongs to one, and waiting, with a bound, for a thing to happen."""

import time
from collections.abc import Callable, Iterable

import psutil

from penstock import LLM
from penstock.protocol.processes.runtime_directory import runtime_base

# A bound that is a behaviour: after a death the whole tree is gone within that time.
GONE_SECONDS = 3.0


def tree_processes(llm: LLM) -> dict[str, int]:
    return {child.role: child.popen.pid for child in llm._session.transport.tree.children}


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_gone(pids: Iterable[int]) -> None:
    pids = list(pids)
    wait_until(lambda: not any(map(is_running, pids)), GONE_SECONDS, f"the end of {pids}")


def runtime_folders() -> set[str]:
    return {path.name for path in runtime_base().glob("t*")}
