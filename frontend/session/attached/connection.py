"""One connection to a daemon: any thread sends frames, one thread reads them.

Connecting checks who listens: another user's socket is not the daemon.
"""

import os
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from ....protocol.attach import (
    HEADER_BYTES,
    LONGEST_REPLY,
    Answer,
    Attached,
    Declined,
    Failed,
    FromDaemon,
    OutputDeltas,
    SaidMore,
    StillWorking,
    frame,
    frame_length,
    is_own_user,
    peer,
)
from ....protocol.errors import EngineDeadError, PenstockError, same_error
from ....protocol.processes.descriptors import said_in_words
from ....protocol.wire import Message

_CONNECT_SECONDS = 5
DaemonMessage = Attached | Declined | OutputDeltas | SaidMore | Failed | Answer  # `FromDaemon` without signs of life
_decoder: msgspec.msgpack.Decoder[FromDaemon] = msgspec.msgpack.Decoder(FromDaemon)


class DaemonConnection:
    """Open from construction on; raises OSError if nobody listens."""

    def __init__(self, address: Path) -> None:
        self.address = address
        with said_in_words(f"The daemon at {address} can't be reached"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The kernel's own time limit, while the daemon's backlog is full.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _seconds(_CONNECT_SECONDS))
            try:
                self._socket.connect(os.fspath(address))
            except BlockingIOError as error:  # the backlog is full
                raise TimeoutError(error.errno, "the listening process takes no connections") from None
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _seconds(0))
            if not is_own_user(self._socket):
                raise PermissionError(f"{address} belongs to another user")
        except BaseException:
            self._socket.close()
            raise
        self.pid = peer(self._socket)[0]  # the daemon's process
        self.num_heard = 0  # frames
        self._silence: PenstockError | None = None
        self._reader = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        self.send_frame(frame(message))

    def send_frame(self, packed: bytes) -> None:
        try:
            with self._lock:
                self._socket.sendall(packed)
        except OSError as error:
            raise self.lost() from error

    def receive(self) -> DaemonMessage | None:
        """The next message; None if the daemon has ended, hung up, or sent anything that this version's daemon
        doesn't send."""
        with suppress(OSError, ValueError, msgspec.DecodeError, PenstockError):
            while len(header := self._reader.read(HEADER_BYTES)) == HEADER_BYTES:
                message = _decoder.decode(self._reader.read(frame_length(header, LONGEST_REPLY)))
                self.num_heard += 1
                if not isinstance(message, StillWorking):
                    return message
        return None

    def give_up(self, error: PenstockError) -> None:
        """The daemon has hung: senders and readers see the end, with that error. Any thread may call this."""
        self._silence = error
        self.hang_up()

    def lost(self) -> PenstockError:
        if self._silence is not None:
            return same_error(self._silence)
        return EngineDeadError(f"The daemon at {self.address} has ended or closed the connection; see `penstock logs`.")

    def hang_up(self) -> None:
        """End the connection; its reader sees the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._reader.close()
        self._socket.close()


def _seconds(number: int) -> bytes:
    return struct.pack("@ll", number, 0)
