"""What the front end tells every child of a tree at its start, as one file in the tree's private folder.

Knows nothing of how it is decided; `frontend/session/tree/tree.py` does that.
"""

from pathlib import Path

import msgspec

from .config import EngineConfig
from .utf8 import names_in_utf8


class Launch(msgspec.Struct, frozen=True):
    config: EngineConfig
    model_folder: str
    tokenizer_folder: str
    threads_per_rank: int
    # Tokens that are text even where special ones are left out: the marks of thoughts and calls, for the front end,
    # which reads them out of some requests' answers.
    shown: list[str] = []
    # The page of heartbeats: a descriptor that every child inherits under this number. -1: nobody looks.
    heartbeats: int = -1

    def write(self, directory: Path) -> None:
        with names_in_utf8():
            encoded = msgspec.msgpack.encode(self)
        (directory / "launch").write_bytes(encoded)

    @classmethod
    def read(cls, directory: Path) -> "Launch":
        return msgspec.msgpack.decode((directory / "launch").read_bytes(), type=cls)
