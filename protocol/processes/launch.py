"""Settings that the front end gives every child of a tree at its start: one file in the tree's private folder.

`frontend/session/tree/tree.py` writes it.
"""

from pathlib import Path

import msgspec

from ..files.utf8 import names_in_utf8
from ..options.config import EngineConfig


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

    def write(self, directory: Path) -> None:
        with names_in_utf8():
            encoded = msgspec.msgpack.encode(self)
        (directory / "launch").write_bytes(encoded)

    @classmethod
    def read(cls, directory: Path) -> "Launch":
        return msgspec.msgpack.decode((directory / "launch").read_bytes(), type=cls)
