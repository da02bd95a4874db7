"""Shows the progress of a download: a bar on a terminal, otherwise a line now and then, and nothing if quiet.

Several threads report their bytes.
"""

import threading
import time

from ....protocol.files.sizes import size
from ...console import logs
from ...console.standard_error import StandardError

# Without a terminal: a line for each tenth, but not more often than this.
_TENTHS, _SECONDS = 10, 10.0


class DownloadProgress:
    """Counts silently."""

    def __init__(self, name: str, total: int, done: int) -> None:
        self.name, self.total, self.done = name, total, done
        self._at_start = done
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._is_closed = False

    def add(self, num_bytes: int) -> None:
        with self._lock:
            self.done += num_bytes
            if not self._is_closed:
                self._show(num_bytes)

    def refresh(self) -> None:
        """Update the displayed time."""

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._end()

    def _show(self, num_bytes: int) -> None:
        """Show nothing."""

    def _end(self) -> None:
        """Show nothing."""

    @property
    def _pace(self) -> float:
        """Bytes per second."""
        return (self.done - self._at_start) / max(time.monotonic() - self._start, 1e-3)


class DownloadBar(DownloadProgress):
    def __init__(self, name: str, total: int, done: int) -> None:
        from tqdm import tqdm  # slow to import, and not needed without a bar

        super().__init__(name, total, done)
        self._bar = tqdm(
            desc=name, total=total, initial=done, unit="B", unit_scale=True, unit_divisor=1024, dynamic_ncols=True,
            file=StandardError(),
        )  # fmt: skip

    def refresh(self) -> None:
        self._bar.refresh()

    def _show(self, num_bytes: int) -> None:
        self._bar.update(num_bytes)

    def _end(self) -> None:
        self._bar.close()


class DownloadLines(DownloadProgress):
    def __init__(self, name: str, total: int, done: int) -> None:
        super().__init__(name, total, done)
        self._last = self._start
        self._tenth = self._current_tenth

    @property
    def _current_tenth(self) -> int:
        return _TENTHS * self.done // max(self.total, 1)

    def _show(self, num_bytes: int) -> None:
        now = time.monotonic()
        if self._current_tenth > self._tenth and now - self._last >= _SECONDS and self.done < self.total:
            self._last, self._tenth = now, self._current_tenth
            left = (self.total - self.done) / max(self._pace, 1.0)
            pace = f"{size(self._pace)}/s, {left:.0f} s left"
            logs.say(f"{self.name}: {size(self.done)} of {size(self.total)}, {pace}", quiet=False)

    def _end(self) -> None:
        if self.done >= self.total:
            seconds = time.monotonic() - self._start
            came = f"{size(self.total)} are there, after {seconds:.0f} s"
            logs.say(f"{self.name}: {came} ({size(self._pace)}/s)", quiet=False)


def download_progress(name: str, total: int, done: int, *, is_quiet: bool) -> DownloadProgress:
    if is_quiet:
        return DownloadProgress(name, total, done)
    kind = DownloadBar if StandardError().isatty() else DownloadLines
    return kind(name, total, done)
