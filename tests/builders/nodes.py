"""Trees over several machines, which are addresses of the loopback network: their processes, and what lies between.

`Wire` is a TCP proxy in front of node 0 that cuts without a word to either side, as a network does.
"""

import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from builders.watching import BOUND_SECONDS, assert_gone, is_running, wait_until

from penstock import LLM
from penstock.protocol.ranks.node_sockets import LinkSocket

KEY = "0123456789abcdef" * 4
FIRST, SECOND, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"


def free_port(address: str = FIRST) -> int:
    with socket.socket() as found:
        found.bind((address, 0))
        return int(found.getsockname()[1])


def options_of(port: int, nnodes: int = 2, **options: Any) -> dict[str, Any]:
    """Node 0's options, with one rank a machine unless they say otherwise."""
    options = {"tensor_parallel_size": nnodes, "quiet": True, **options}
    return {"nnodes": nnodes, "master_addr": FIRST, "master_port": port, **options}


class OtherMachine:
    """`penstock worker` on another address."""

    def __init__(
        self, model: Path | str, port: int, *words: str, rank: int = 1, nnodes: int = 2, key: str = KEY,
        address: str = SECOND,
    ) -> None:  # fmt: skip
        command = [sys.executable, "-m", "penstock", "worker", str(model), "--nnodes", str(nnodes)]
        command += ["--node-rank", str(rank), "--master-addr", FIRST, "--master-port", str(port), *words]
        environment = {**os.environ, "PENSTOCK_NODE_KEY": key, "PENSTOCK_HOST_IP": address}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(command, env=environment, text=True, **streams)
        self.pids: set[int] = {self.process.pid}  # all that it has ever had
        self.said = ""

    def note_ranks(self) -> list[int]:
        """The processes of its ranks."""
        children = [each.pid for each in psutil.Process(self.process.pid).children() if is_running(each.pid)]
        self.pids.update(children)
        return children

    def ended(self) -> tuple[int, str]:
        """Its exit status and what it has said, once it and its ranks are gone."""
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.said, _ = self.process.communicate(timeout=BOUND_SECONDS)
        assert_gone(self.pids)
        return self.process.returncode, self.said

    def close(self) -> None:
        for number in (signal.SIGCONT, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(number)
        self.ended()


@contextmanager
def machines(model: Path | str, *others: OtherMachine, port: int, **options: Any) -> Iterator[LLM]:
    """A tree over node 0, in this process, and the others, which have been started."""
    llm = LLM(model, **options_of(port, len(others) + 1, **options))
    try:
        for other in others:
            other.note_ranks()
        yield llm
        llm.close()
        for other in others:
            other.ended()
    finally:
        llm.close()
        for other in others:
            other.close()


class Wire:
    """Listens at node 0's address and connects to where its tree really listens."""

    def __init__(self, port: int) -> None:
        """`port` of the tree; the others join at `self.port`."""
        self._to = port
        self.is_cut = False
        self.flipped: int | None = None  # a bit of this byte of what comes next is flipped, once
        self._listener = socket.create_server((FIRST, 0))
        self.port = int(self._listener.getsockname()[1])
        self._ends: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                try:
                    far = socket.create_connection((FIRST, self._to))
                except OSError:  # the tree doesn't listen yet
                    near.close()
                    continue
                self._ends += [near, far]
                threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
            for end in other:
                selector.register(end, selectors.EVENT_READ)
            while True:
                for ready, _ in selector.select():
                    octets = ready.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if self.is_cut:  # nobody hears of it
                        continue
                    if not octets:
                        near.close()
                        far.close()
                        return
                    if self.flipped is not None and ready.fileobj is near:
                        octets, self.flipped = self._flip(octets, self.flipped)
                    other[ready.fileobj].sendall(octets)  # type: ignore[index]

    @staticmethod
    def _flip(octets: bytes, place: int) -> tuple[bytes, int | None]:
        """Flip a bit of a byte, if these bytes reach it; returns them, and its place in those to come."""
        if place >= len(octets):
            return octets, place - len(octets)
        return octets[:place] + bytes([octets[place] ^ 1]) + octets[place + 1 :], None

    def close(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def messages_to(link: LinkSocket, or_until: Callable[[], bool] = lambda: False) -> list[list[bytes]]:
    """Wait for the next message of another machine to node 0, which checks its key first."""
    found: list[list[bytes]] = []

    def looked() -> bool:
        if link.questions.poll(0):
            link.answer()
        if (message := link.receive()) is not None:
            found.append(message)
        return bool(found) or or_until()

    wait_until(looked, "a machine says something")
    return found


def listeners(pids: set[int]) -> list[Any]:
    """TCP addresses at which these processes listen."""
    found = []
    for pid in filter(is_running, pids):
        with suppress(psutil.NoSuchProcess):
            found += [each.laddr for each in psutil.Process(pid).net_connections("tcp") if each.status == "LISTEN"]
    return found


def wait_for_ranks(other: OtherMachine, count: int = 1) -> list[int]:
    wait_until(lambda: len(other.note_ranks()) >= count, "its ranks")
    return other.note_ranks()
