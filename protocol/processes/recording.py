"""Writes a stream of messages to a file and reads it back, to replay a process's work.

The engine records its messages to the workers and rank 0's answers. Since a worker is a pure function of that stream,
feeding it to a new worker must give the same answers (`scripts/replay.py`).
"""

import logging
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import ConfigError
from ..files.formats import RECORDING
from ..fingerprint import PROTOCOL

_LOG = logging.getLogger(__name__)
_LENGTH = struct.Struct("<Id?")
_FAMILY = b"penstock recording "
_MARK = _FAMILY + b"%d %s\n" % (RECORDING.version, PROTOCOL.encode())  # messages are those of one version


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything: a nearly full disk takes a part, and fails only at the next write."""
    while content:
        content = content[os.write(descriptor, content) :]


def ended(option: str, error: OSError) -> str:
    """The message for when no more can be written to the file of an option."""
    from ..files.user_folders import reason  # rarely needed

    return (
        f"What {option}= writes ends here, and everything else goes on: {reason(error)}. What is in the file can be "
        "read. For all of it make room, or name a file on another disk, and begin anew."
    )


class RecordedMessage(NamedTuple):
    message: Any
    is_answer: bool  # came back from rank 0
    time: float


class Recorder:
    def __init__(self, path: str) -> None:
        self._file = open(path, "wb", buffering=0)
        self._has_ended = False
        self._encoder = msgspec.msgpack.Encoder()
        self._write(_MARK)

    def write(self, message: Any, *, is_answer: bool) -> None:
        """Write a message. If the disk is full the recording ends; the process continues."""
        if self._has_ended:
            return
        body = self._encoder.encode(message)
        self._write(_LENGTH.pack(len(body), time.monotonic(), is_answer) + body)

    def _write(self, content: bytes) -> None:
        try:
            write_all(self._file.fileno(), content)
        except OSError as error:
            self._has_ended = True
            _LOG.warning("%s", ended("record", error))


def read_recording(path: str | Path, messages: Any) -> Iterator[RecordedMessage]:
    """All complete messages of a recording; a process's death may have cut off the last one."""
    decoder = msgspec.msgpack.Decoder(messages)
    with open(path, "rb") as file:
        if (mark := file.read(len(_MARK))) != _MARK:
            found = mark[len(_FAMILY) :].decode(errors="replace").strip() if mark.startswith(_FAMILY) else "none"
            raise ConfigError(f"{path}: {RECORDING.refusal(found)}")
        while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
            length, moment, is_answer = _LENGTH.unpack(head)
            body = file.read(length)
            if len(body) < length:
                return
            yield RecordedMessage(decoder.decode(body), is_answer, moment)
