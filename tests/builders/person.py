"""Someone at a terminal: types at a program and looks at its screen, which is a terminal's emulation.

Waits for what should be seen, with a bound.
"""

import time
from collections.abc import Callable

import pexpect
import psutil
import pyte

BOUND = 60  # seconds; a wait never ends a test that passes


class Person:
    """Has started a program with `pexpect.spawn`, in a window of so many lines and columns."""

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
        """What stands on the screen, up to the last line that holds something."""
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

    def _look(self) -> None:
        try:
            text = self.child.read_nonblocking(4096, timeout=1)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return
        self.written += text
        self.stream.feed(text)
