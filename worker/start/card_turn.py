"""Locks on this machine's GPUs, so that only one tree at a time plans and takes their memory.

What a tree will take and has not taken yet looks free to others. So a tree holds the lock of each of its GPUs from the
loading of its weights until all its memory is taken; two that start together do so one after the other. Rank 0 holds
the locks for all ranks, in one order everywhere, so that no two trees wait for each other. A process that ends gives
its locks up.
"""

import fcntl
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from ...protocol.files.own_folder import lock_file

_LOG = logging.getLogger(__name__)


class CardTurn:
    """The locks of some GPUs, by names that are the same for every tree of this user."""

    def __init__(self, folder: Path, cards: Iterable[str]) -> None:
        self._held: list[IO[str]] = []
        for card in sorted(set(cards)):
            self._held.append(_locked(folder / f"card-{card}"))

    def release(self) -> None:
        while self._held:
            self._held.pop().close()


def _locked(path: Path) -> IO[str]:
    file = os.fdopen(lock_file(path), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _LOG.info("another tree is starting on this card; waiting until it has taken its memory")
        fcntl.flock(file, fcntl.LOCK_EX)
    return file
