"""A daemon of the test's own, in the background as `penstock start` makes it, and looks at what it holds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from builders.watching import is_running

from penstock import LLM
from penstock.frontend.console import logs
from penstock.frontend.daemon.background import line_to, start_daemon, status_of, stop_daemon
from penstock.protocol.attach import DaemonStatus, ModelStatus

WAIT_SECONDS = 20.0
STAND_IN = """
model = "pocket"
load_format = "stand-in"
max_model_len = 1024
num_gpu_blocks_override = 128
quiet = true
"""


def models(*names: str, more: str = "", **own: object) -> str:
    """A configuration of models whose worker computes nothing; `own` are the daemon's settings, `more` each model's."""
    lines = "".join(f"{key} = {value}\n" for key, value in own.items())
    return lines + "".join(f"[models.{name}]\n{STAND_IN}{more}\n" for name in names)


class RunningDaemon:
    config: Path  # where it was started from one

    def __init__(self, address: Path) -> None:
        self.address = address

    def attach(self, model: str = "pocket", **options: Any) -> LLM:
        return LLM(model, connect=str(self.address), quiet=True, **options)

    def status(self) -> DaemonStatus:
        line = line_to(self.address)
        try:
            return status_of(line)
        finally:
            line.close()

    def model(self, name: str = "pocket") -> ModelStatus:
        return next(model for model in self.status().models if model.name == name)

    def processes(self) -> list[int]:
        """The daemon's own and all of its children."""
        daemon = psutil.Process(self.status().pid)
        return [daemon.pid, *(child.pid for child in daemon.children(recursive=True))]

    def has_nothing_to_do(self, name: str = "pocket") -> bool:
        stats = self.model(name).stats
        return stats is None or (stats.running == stats.waiting == 0 and stats.free_blocks == stats.blocks)


@contextmanager
def running_daemon(folder: Path, *words: str) -> Iterator[RunningDaemon]:
    """Ended, with all of its processes, when the block is left. Without HTTP unless the words ask for it."""
    folder.chmod(0o700)
    address = folder / "socket"
    start_daemon([*words, *([] if "--http" in words else ["--no-http"])], address)
    daemon = RunningDaemon(address)
    log = logs.daemon_log()
    said = log.stat().st_size
    pid = daemon.status().pid
    try:
        yield daemon
    finally:
        if address.exists():
            stop_daemon(address, 0.0)
        wait_for(lambda: not is_running(pid), "the daemon has ended")
        assert b"Traceback" not in log.read_bytes()[said:], log.read_bytes()[said:].decode()


def wait_for(holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> float:
    """How long it took; a failed assertion after `seconds`."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() - start < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return time.monotonic() - start


def worker_of(daemon: RunningDaemon) -> int:
    return process_of(daemon, "penstock.worker")


def process_of(daemon: RunningDaemon, role: str) -> int:
    """The first one that was started by that name."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in daemon.processes()[1:]}
    return next(pid for pid, command in commands.items() if role.encode() in command)
