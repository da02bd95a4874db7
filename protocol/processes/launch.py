"""Settings that the front end gives every child of a tree at its start: one file in the tree's private folder.

`frontend/session/tree/tree.py` writes it. The children are started before, and import what they need meanwhile.
"""

import fcntl
from pathlib import Path

import msgspec

from ..files.utf8 import names_in_utf8
from ..options.config import EngineConfig
from ..pooling.form import PoolingForm


class Launch(msgspec.Struct, frozen=True):
    config: EngineConfig
    model_folder: str
    tokenizer_folder: str
    threads_per_rank: int
    # Special tokens that stay in some answers although special tokens are skipped: the marks of thoughts and calls,
    # which the front end parses.
    shown: list[str] = []
    # The page of heartbeats: a descriptor that every child inherits under this number. -1: there is no page.
    heartbeats: int = -1
    draft_folder: str = ""  # of the model that drafts, if there is one
    # The address of this machine at which the ranks of others find its own; empty if all are on one machine.
    address: str = ""
    pooling: PoolingForm | None = None  # if the model gives vectors instead of tokens

    @classmethod
    def read(cls, directory: Path) -> "Launch":
        """Wait until it is written, and read it."""
        with open(directory / "launch", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return msgspec.msgpack.decode(file.read(), type=cls)


class LaunchFile:
    """The file before it has content: a lock keeps its readers waiting."""

    def __init__(self, directory: Path) -> None:
        self._file = open(directory / "launch", "wb")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, launch: Launch) -> None:
        with names_in_utf8(), self._file:
            self._file.write(msgspec.msgpack.encode(launch))
            self._file.flush()
            fcntl.flock(self._file, fcntl.LOCK_UN)  # a forked copy of this process may hold the file open

    def close(self) -> None:
        self._file.close()
