"""Turns SIGTERM and SIGHUP into an orderly exit, whose exit status names the signal."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Raise `SystemExit` for either signal, once. An ignored signal stays ignored, as `nohup` needs it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = [number for number, handler in earlier.items() if handler is not signal.SIG_IGN]

    def leave(number: int, frame: FrameType | None) -> None:
        for each in handled:  # a second one must not interrupt the clean-up
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in handled:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, earlier[number])
