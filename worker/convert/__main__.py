"""The process that converts a model, `python -m penstock.worker.convert`.

It reads a `Conversion` as one line of JSON from standard input, prints its progress on its output, and ends when its
input does.
"""

import os
import signal
import sys
import threading

import msgspec

from ...protocol.conversion import Conversion, ConversionMessage, ConversionRefusal
from ...protocol.errors import PenstockError
from ...protocol.processes.child import usual_signals
from ..importing import no_collections

with no_collections():
    from .convert import convert

_ENDED = 3


def main() -> None:
    usual_signals()
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=Conversion)
    is_told_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_told_to_end.set())
    threading.Thread(target=_watch_parent, args=(is_told_to_end,), daemon=True).start()

    def say(said: ConversionMessage) -> None:
        # Ends only here, between two pieces, so that the removal of unfinished files is never interrupted.
        if is_told_to_end.is_set():
            sys.exit(_ENDED)
        try:
            print(msgspec.json.encode(said).decode(), flush=True)
        except BrokenPipeError:
            sys.exit(_ENDED)

    try:
        say(convert(asked, say))
    except (PenstockError, OSError) as error:
        say(ConversionRefusal(str(error)))


def _watch_parent(is_told_to_end: threading.Event) -> None:
    # Read until the parent's end of the pipe closes. Python can't exit while a thread is in its own buffered reader.
    while os.read(sys.stdin.fileno(), 1 << 12):
        pass
    is_told_to_end.set()


if __name__ == "__main__":
    main()
