"""A person at a terminal, who types and looks at the screen, which is a terminal's emulation.

At a `Terminal` one process runs the command `penstock` again and again, over trees that stay open (`shell.py`).
"""

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pexpect
import psutil
import pyte
from builders.shell import BOUND, open_shell, status_of
from builders.starts import python_path


class Person:
    """Someone at a terminal; waits for what should be seen, with a bound.

    Has started a program with `pexpect.spawn`, in a window of so many lines and columns.
    """

    def __init__(self, child: "pexpect.spawn[str]", lines: int, columns: int) -> None:
        self.child = child
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.Stream(self.screen)
        self.written = ""
        self.left_echo_on = False

    def type(self, text: str) -> None:
        self.child.send(text)

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, up to the last one that holds something."""
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def sees(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the screen is so."""
        deadline = time.monotonic() + BOUND
        while not is_so(self.lines):
            assert time.monotonic() < deadline, "\n".join(self.lines)
            self._look()
        return self.lines

    def sees_prompt(self) -> list[str]:
        """An empty line to type on, and the cursor there; and the program waits for what is typed.

        A Ctrl-C that comes after Python's readline has written the prompt, and before it waits, is heard with the next
        key: no person is so fast, and a test is.
        """
        lines = self.sees(lambda lines: lines[-1:] == [">"] and self.screen.cursor.x == 2)
        deadline = time.monotonic() + BOUND
        while self.child.isalive() and psutil.Process(self.child.pid).status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < deadline, "the program shows a prompt, and does not wait"
            time.sleep(0.001)
        return lines

    def sees_text(self, text: str) -> list[str]:
        return self.sees(lambda lines: any(text in line for line in lines))

    def sees_end(self) -> int:
        deadline = time.monotonic() + BOUND
        while not self.child.eof():
            assert time.monotonic() < deadline, "\n".join(self.lines)
            self._look()
        self.left_echo_on = self.child.getecho()
        self.child.close()
        return self.child.exitstatus

    def resizes(self, lines: int, columns: int) -> None:
        self.screen.resize(lines, columns)
        self.child.setwinsize(lines, columns)

    def _look(self, seconds: float = 1.0) -> None:
        with suppress(pexpect.TIMEOUT, pexpect.EOF):
            self._takes(self.child.read_nonblocking(4096, timeout=seconds))

    def _takes(self, text: str) -> None:
        self.written += text
        self.stream.feed(text)


class Terminal:
    """A terminal at which one process runs command after command; the trees that they open are kept for the next.

    Its variables are the same whatever this run's own terminal has.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._open()

    def _open(self) -> None:
        address = str(self._folder / f"socket {self._count}")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            listener.settimeout(BOUND)
            tests = Path(__file__).parents[1]
            code = f"from builders.terminal import run_at_terminal as run; run({address!r})"
            names = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
            names["PYTHONPATH"] = os.pathsep.join((str(tests), python_path()))
            kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "INPUTRC")}
            self._child = pexpect.spawn(
                sys.executable, ["-c", code], env=kept | names, encoding="utf-8", codec_errors="replace", timeout=BOUND
            )
            self._connection = listener.accept()[0]
        self._connection.settimeout(BOUND)
        self._lines = self._connection.makefile("r")

    def start(self, *words: object, lines: int = 24, columns: int = 100, **environment: str) -> "AtTerminal":
        self._count += 1
        if not self._child.isalive():  # a test that has ended it fails alone
            self.close()
            self._open()
        self._child.setwinsize(lines, columns)
        mark = f"<command {self._count}>"
        call = {"words": list(map(str, words)), "environment": environment, "mark": mark}
        self._connection.sendall(json.dumps(call).encode() + b"\n")
        self._child.expect_exact(f"{mark}\r\n")
        return AtTerminal(self._child, lines, columns, self)

    def has_ended(self) -> bool:
        return bool(select.select([self._connection], [], [], 0)[0])

    def status(self) -> int:
        """The status that the running command ends with."""
        line = self._lines.readline()
        assert line, f"The terminal's process has ended: {self._child.read()}"
        return int(line)

    def close(self) -> None:
        self._lines.close()
        self._connection.close()
        self._child.close(force=True)


class AtTerminal(Person):
    """Has started a command at a terminal that is used again."""

    def __init__(self, child: "pexpect.spawn[str]", lines: int, columns: int, terminal: Terminal) -> None:
        super().__init__(child, lines, columns)
        self._terminal = terminal
        self._is_over = False
        self._takes(child.buffer)  # what was read together with the mark
        child.buffer = ""

    def sees_end(self) -> int:
        deadline = time.monotonic() + BOUND
        while not self._terminal.has_ended():  # what nobody reads would fill the terminal, and the command would wait
            assert time.monotonic() < deadline, "\n".join(self.lines)
            self._look(0.05)
        self._look(0.05)
        self._is_over = True
        self.left_echo_on = self.child.getecho()
        return self._terminal.status()

    def leaves(self) -> None:
        """End the command in the middle of whatever it does."""
        if not self._is_over:
            if not self._terminal.has_ended():
                os.kill(self.child.pid, signal.SIGTERM)
            assert self.sees_end() in (0, 1, 128 + signal.SIGINT, 128 + signal.SIGTERM)


def _ignored(*_: object) -> None: ...


def run_at_terminal(address: str) -> None:
    """Run the commands that a test asks for by its socket, each as if the process had begun with it."""
    import readline
    import termios

    # A signal that was sent to a command may come when that has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignored)
    with socket.socket(socket.AF_UNIX) as connection, open_shell() as shell:
        connection.connect(address)
        for line in connection.makefile("r"):
            call: dict[str, Any] = json.loads(line)
            readline.clear_history()
            termios.tcflush(0, termios.TCIFLUSH)
            print(call["mark"], flush=True)
            with shell.trees.in_place(), mock.patch.dict(os.environ, call["environment"]):
                signal.signal(signal.SIGINT, signal.default_int_handler)
                try:
                    try:
                        status = status_of(*call["words"])
                    finally:
                        signal.signal(signal.SIGINT, _ignored)
                except KeyboardInterrupt:  # one of several, which came when the command had ended
                    status = 128 + signal.SIGINT
            termios.tcdrain(1)
            connection.sendall(b"%d\n" % status)
