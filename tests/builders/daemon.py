"""A daemon of the test's own, in the background as `penstock start` makes it, and looks at what it holds.

And a client that says whatever a test wants, a byte at a time if need be, and hears what it is told.
"""

import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
from builders.watching import BOUND_SECONDS, is_running, module_of, wait_until

from penstock import LLM, SamplingParams
from penstock.frontend.console import logs
from penstock.frontend.daemon.background import daemon_status, start_daemon, stop_daemon
from penstock.protocol.attach import (
    ATTACH_PROTOCOL,
    Ask,
    Attach,
    Attached,
    DaemonStatus,
    Declined,
    Failed,
    FromDaemon,
    ModelStatus,
    OutputDelta,
    OutputDeltas,
    StillWorking,
    WireRequest,
    frame,
)

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
        return daemon_status(self.address)

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
    log = logs.daemon_log(address)
    said = log.stat().st_size
    pid = daemon.status().pid
    try:
        yield daemon
    finally:
        if address.exists():
            stop_daemon(address, 0.0)
        wait_until(lambda: not is_running(pid), "the daemon has ended")
        assert b"Traceback" not in log.read_bytes()[said:], log.read_bytes()[said:].decode()


@contextmanager
def seeing_daemon(folder: Path, model: Path, *words: str, **options: Any) -> Iterator[RunningDaemon]:
    """A daemon with one model, `seeing`, from that folder."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"model": str(model), **options}.items()]
    config = folder / "penstock.toml"
    config.write_text("\n".join(["[models.seeing]", *lines]))
    with running_daemon(folder, "--config", str(config), *words) as daemon:
        yield daemon


def worker_of(daemon: RunningDaemon) -> int:
    return process_of(daemon, "penstock.worker")


def process_of(daemon: RunningDaemon, module: str) -> int:
    """The first one that was started to run that module, as soon as there is one."""
    found: list[int] = []
    wait_until(lambda: bool(found.extend(processes_of(daemon, module)) or found), module)
    return found[0]


def processes_of(daemon: RunningDaemon, module: str) -> list[int]:
    return [pid for pid in daemon.processes()[1:] if module_of(pid).startswith(module)]


# --- a client of the test's own ---------------------------------------------------------------------------------------

_decoder = msgspec.msgpack.Decoder(FromDaemon)


class PlainClient:
    def __init__(self, daemon: RunningDaemon) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.fspath(daemon.address))
        self.socket.settimeout(BOUND_SECONDS)
        self.socket_file = self.socket.makefile("rb")

    def send(self, sent: bytes | msgspec.Struct) -> "PlainClient":
        """Whoever is sent away meanwhile hears why by reading."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(sent if isinstance(sent, bytes) else frame(sent))
        return self

    def announce(self, length: int) -> "PlainClient":
        return self.send(struct.pack("<I", length))

    def hear(self) -> Any | None:
        """The next message that says more than that the daemon works; None at the end."""
        with suppress(ConnectionResetError):
            while len(header := self.socket_file.read(4)) == 4:
                (length,) = struct.unpack("<I", header)
                message = _decoder.decode(self.socket_file.read(length))
                if not isinstance(message, StillWorking):
                    return message
        return None

    def last_words(self) -> str:
        """Why it is sent away; empty where that isn't said."""
        said = ""
        while (message := self.hear()) is not None:
            if isinstance(message, Declined):
                said = message.failure.message
        return said

    def attach(self, model: str = "pocket") -> "PlainClient":
        self.send(Attach(ATTACH_PROTOCOL, model, model, {}))
        assert isinstance(self.hear(), Attached)
        return self

    def ask(self, *requests: WireRequest, params: Any = None) -> "PlainClient":
        return self.send(Ask(list(requests), [SamplingParams(max_tokens=2)] if params is None else params))

    def ends(self, count: int) -> list[OutputDelta | Failed]:
        """The last pieces of so many requests, in the order in which they come."""
        ended: list[OutputDelta | Failed] = []
        while len(ended) < count:
            message = self.hear()
            assert message is not None, f"the connection has ended, after {ended}"
            if isinstance(message, OutputDeltas):
                ended += [piece for piece in message.deltas if piece.finished]
            elif isinstance(message, Failed):
                ended.append(message)
            else:
                raise AssertionError(message)
        return ended

    def close(self) -> None:
        self.socket_file.close()
        self.socket.close()

    def __enter__(self) -> "PlainClient":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def grown_by_at_most(daemon: RunningDaemon, mebibytes: float) -> Iterator[None]:
    """The daemon's own memory, looked at when the block is left."""
    process = psutil.Process(daemon.status().pid)
    before = process.memory_info().rss
    yield
    grown = (process.memory_info().rss - before) / 2**20
    assert grown <= mebibytes, f"the daemon has grown by {grown:.1f} MiB"
