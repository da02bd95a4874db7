"""Loads adapters in a thread, while steps that don't use them continue.

The order that matters is kept: steps before a load in the engine's stream are done when it begins, and steps that use
the adapter come after this rank's answer.
"""

import hashlib
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from ...protocol.adapter_messages import AdapterLoaded, AdapterOrder, LoadAdapter, UnloadAdapter
from ...protocol.errors import AdapterError
from ...protocol.files.model_file import file_identity
from ...protocol.processes.faults import point
from .adapters import AdapterBank

_NICENESS = 10
_IDENTITY_BYTES = 16


class AdapterThread:
    """The thread; it starts with the first load and lives as long as the process."""

    def __init__(self, bank: AdapterBank, rank: int, answer: Callable[[AdapterLoaded], None]) -> None:
        self.bank = bank
        self.rank = rank
        self._answer = answer
        self._asked: queue.SimpleQueue[LoadAdapter] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="adapters", daemon=True)

    def take(self, message: AdapterOrder) -> None:
        if isinstance(message, UnloadAdapter):
            self.bank.unload(message.adapter)
            return
        if not self._thread.is_alive():
            self._thread.start()
        self._asked.put(message)

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # only this thread, on Linux
        while True:
            message = self._asked.get()
            before = _identity(Path(message.folder))
            reason, sentence = self._loaded(message)
            after = _identity(Path(message.folder))
            # Files that change meanwhile are no other's.
            identity = before if before == after else os.urandom(_IDENTITY_BYTES).hex()
            self._answer(AdapterLoaded(self.rank, message.adapter, reason, sentence, identity))

    def _loaded(self, message: LoadAdapter) -> tuple[str, str]:
        """Load the adapter; return the error, if any. The engine can continue without this adapter."""
        try:
            point("worker.adapter")
            self.bank.load(message.adapter, Path(message.folder))
        except AdapterError as error:
            return error.reason, str(error)
        except BaseException as error:  # a library's panic is no Exception
            return "files", f"{message.folder} could not be loaded: {type(error).__name__}: {error}"
        return "", ""


def _identity(path: Path) -> str:
    """Identify an adapter's files in their present state."""
    try:
        files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
        lines = [f"{each.name} {file_identity(each)}" for each in files]
    except OSError:
        return os.urandom(_IDENTITY_BYTES).hex()
    text = "\n".join(lines).encode(errors="surrogateescape")
    return hashlib.blake2b(text, digest_size=_IDENTITY_BYTES).hexdigest()
