"""The process that converts a model, `python -m penstock.worker.convert`.

It takes a `Conversion` as one line of JSON on its standard input, says how far it is on its output, and ends when its
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
from .convert import convert


def main() -> None:
    usual_signals()
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=Conversion)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def say(said: ConversionMessage) -> None:
        print(msgspec.json.encode(said).decode(), flush=True)

    try:
        say(convert(asked, say))
    except (PenstockError, OSError) as error:
        say(ConversionRefusal(str(error)))


def _end_with_parent() -> None:
    sys.stdin.buffer.read()  # returns when the parent's end of the pipe closes
    os.kill(os.getpid(), signal.SIGTERM)


def _end(*_: object) -> None:
    """In the main thread, so that what was begun is removed on the way out."""
    sys.exit(3)


if __name__ == "__main__":
    main()
