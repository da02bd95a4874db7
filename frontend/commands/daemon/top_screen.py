"""The screen of `penstock top`: a look a second in a thread, keys meanwhile, and nothing left on the terminal."""

import curses
import threading
import time
from contextlib import suppress
from typing import Any

from ....protocol.errors import PenstockError
from ...console.printable import on_one_line
from .top_figures import Look, Source, rows_of
from .top_table import MODELS, REQUESTS, Column, sorted_by, table

_KEY_SECONDS = 0.1
_HELP = "q leave  m/M sort models  s/S sort requests  ↑↓ choose  c stop it"


class Looks:
    """The newest two looks, made in a thread: a server that doesn't answer must not keep keys waiting."""

    def __init__(self, source: Source, interval: float) -> None:
        self.newest: tuple[Look | None, Look | None] = (None, None)  # the earlier one and the later
        self.fault = ""
        self._source, self._interval = source, interval
        self._has_ended = threading.Event()
        threading.Thread(target=self._run, name="top", daemon=True).start()

    def _run(self) -> None:
        while not self._has_ended.is_set():
            try:
                self.newest = (self.newest[1], self._source.look())
                self.fault = ""
            except PenstockError as error:
                self.fault = str(error)
            except Exception as error:  # a reply of another form
                self.fault = f"{self._source.name} gives a reply that can't be read ({error})."
            self._has_ended.wait(self._interval)

    def end(self) -> None:
        self._has_ended.set()


class Screen:
    def __init__(self, window: "curses.window", source: Source, interval: float) -> None:
        self._window, self._source, self._interval = window, source, interval
        self._looks = Looks(source, interval)
        self._models_by, self._models_reversed = MODELS[0], False
        self._requests_by, self._requests_reversed = REQUESTS[1], False
        self._chosen: str | None = None  # the id of a request
        self._asked: str | None = None  # the id of one to stop, if that is confirmed
        self._word = ""  # of the last thing that was done

    def run(self) -> None:
        with suppress(curses.error):  # some terminals can't
            curses.curs_set(0)
        self._window.timeout(int(_KEY_SECONDS * 1000))
        drawn = 0.0
        try:
            while True:
                if time.monotonic() - drawn > _KEY_SECONDS:
                    self._draw()
                    drawn = time.monotonic()
                key = self._window.getch()
                if key == -1:
                    continue
                if not self._take(key):
                    return
                drawn = 0.0
        finally:
            self._looks.end()

    def _take(self, key: int) -> bool:
        """Do what a key means; False to leave."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            if key in (ord("y"), ord("Y")):
                self._word = f"Stopping {asked} …"
                threading.Thread(target=self._stop, args=(asked,), name="top-stop", daemon=True).start()
            else:
                self._word = "It goes on."
            return True
        match chr(key) if 0 <= key < 256 else key:
            case "q" | "Q":
                return False
            case "m":
                self._models_by = _next(MODELS, self._models_by)
            case "M":
                self._models_reversed = not self._models_reversed
            case "s":
                self._requests_by = _next(REQUESTS, self._requests_by)
            case "S":
                self._requests_reversed = not self._requests_reversed
            case curses.KEY_DOWN | "j":
                self._choose(1)
            case curses.KEY_UP | "k":
                self._choose(-1)
            case "c":
                self._word = "" if self._chosen else "Choose a request first (↑↓)."
                self._asked = self._chosen
        return True

    def _stop(self, request_id: str) -> None:
        """Runs in a thread, as a look does."""
        try:
            self._source.stop(request_id)
            self._word = f"{request_id} was stopped."
        except PenstockError as error:
            self._word = str(error)

    def _requests(self, now: Look | None) -> list[dict[str, Any]]:
        found = [] if now is None or now.requests is None else now.requests
        return sorted_by(found, self._requests_by, is_reversed=self._requests_reversed)

    def _choose(self, step: int) -> None:
        ids = [str(each["id"]) for each in self._requests(self._looks.newest[1])]
        if not ids:
            self._chosen = None
        elif self._chosen not in ids:
            self._chosen = ids[0 if step > 0 else -1]
        else:
            self._chosen = ids[(ids.index(self._chosen) + step) % len(ids)]

    def _draw(self) -> None:
        height, width = self._window.getmaxyx()
        self._window.erase()
        lines = self._lines(width - 1)
        for number, (text, style) in enumerate(lines[: height - 1]):
            with suppress(curses.error):  # a window that was just made smaller
                self._window.addstr(number, 0, text, style)
        foot = f"Stop {self._asked}? y/n" if self._asked else self._word or _HELP
        with suppress(curses.error):
            self._window.addstr(height - 1, 0, on_one_line(foot)[: width - 1], curses.A_REVERSE)
        self._window.refresh()

    def _lines(self, width: int) -> list[tuple[str, int]]:
        plain, bold, dim = curses.A_NORMAL, curses.A_BOLD, curses.A_DIM
        looks, (before, now) = self._looks, self._looks.newest
        head = f"penstock top  {self._source.name}  {time.strftime('%H:%M:%S')}"
        lines = [(on_one_line(head)[:width], bold)]
        if looks.fault:
            lines.append((on_one_line(f"Trying again: {looks.fault}")[:width], bold))
        if now is None:
            return lines if looks.fault else [*lines, ("Looking …", plain)]
        style = dim if looks.fault else plain
        rows = sorted_by(rows_of(before, now), self._models_by, is_reversed=self._models_reversed)
        heading, *found = table(MODELS, rows, width, self._models_by)
        lines += [("", plain), (heading, bold), *((line, style) for line in found or ["no models"])]
        if now.requests is None:
            return [*lines, ("", plain), ("Requests can't be listed: they need HTTP, and its key."[:width], dim)]
        requests = self._requests(now)
        heading, *found = table(REQUESTS, requests, width, self._requests_by)
        lines += [("", plain), (heading, bold)]
        for each, line in zip(requests, found):
            lines.append((line, curses.A_REVERSE if str(each["id"]) == self._chosen else style))
        return lines if found else [*lines, ("no requests of yours", style)]


def _next(columns: tuple[Column, ...], column: Column) -> Column:
    return columns[(columns.index(column) + 1) % len(columns)]


def show(source: Source, interval: float) -> None:
    """Show the screen until its reader leaves; the terminal is as before afterwards."""
    curses.wrapper(lambda window: Screen(window, source, interval).run())
