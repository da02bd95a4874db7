"""LoRA adapters of several trees: each tree has all of them, or a request's answer would depend on where it runs."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from ...protocol.errors import AdapterError, EngineDeadError, PenstockError
from ..models.file_stamps import FileStamps
from ..session.session import adapter_folder, check_adapter_name
from .replica import Replica

_ALL_DEAD = "All trees of this model have died and are being started again. Try again later."


class ReplicaAdapters:
    def __init__(self, replicas: Sequence[Replica], is_used: Callable[[str], bool]) -> None:
        """`is_used` tells whether any request names the adapter."""
        self.loaded: dict[str, str] = {}  # name → folder
        self.stamps: dict[str, FileStamps] = {}  # of their files
        self.change = threading.Lock()  # held while adapters change, and while a tree that was started again gets them
        self._replicas = replicas
        self._is_used = is_used

    def load(self, name: str, path: str | os.PathLike[str]) -> None:
        """Load an adapter into all trees; if one refuses it, none keeps it."""
        folder = adapter_folder(name, path)
        with self.change:
            self._on_each(lambda each: each.adapters.load(name, folder), lambda each: each.adapters.unload(name))
            found = (each.adapters.stamps.get(name) for each in self._replicas)
            stamps = next((each for each in found if each is not None), None)
            if stamps is None:  # those that had loaded it have died since
                raise EngineDeadError(_ALL_DEAD)
            self.loaded[name], self.stamps[name] = folder, stamps

    def unload(self, name: str) -> None:
        check_adapter_name(name)
        with self.change:
            if name in self.loaded and self._is_used(name):
                raise AdapterError(
                    f"The adapter {name!r} is in use by running or waiting answers. Wait for them, or abort them.",
                    "busy",
                )
            folder = self.loaded.get(name, "")
            self._on_each(lambda each: each.adapters.unload(name), lambda each: each.adapters.load(name, folder))
            self.loaded.pop(name, None)
            self.stamps.pop(name, None)

    def names(self) -> list[str]:
        for each in self._open():
            try:
                return each.adapters.names()
            except PenstockError:
                if each.is_open:
                    raise
        return list(self.loaded)

    def folders(self) -> dict[str, str]:
        return dict(self.loaded)

    def load_again(self, replica: Replica) -> None:
        """Give a tree that was started again all adapters; `change` is held. Raises if their files have changed."""
        for name, folder in self.loaded.items():
            replica.adapters.load(name, folder)
            if replica.adapters.stamps[name] != self.stamps[name]:
                raise EngineDeadError(f"The files of the adapter {name!r} have changed since it was loaded.")

    def _open(self) -> list[Replica]:
        return [each for each in self._replicas if each.is_open]

    def _on_each(self, do: Callable[[Replica], None], undo: Callable[[Replica], None]) -> None:
        done: list[Replica] = []
        for each in self._open():
            try:
                do(each)
                done.append(each)
            except PenstockError as error:
                if each.is_open and each.transport.error is None:
                    _undo(done, undo, error)
        if not done:
            raise EngineDeadError(_ALL_DEAD)


def _undo(done: Sequence[Replica], undo: Callable[[Replica], None], error: PenstockError) -> NoReturn:
    for each in done:
        try:
            undo(each)
        except PenstockError:
            if each.is_open and each.transport.error is None:
                each.transport.terminate()  # it would answer differently from the others: start it again
    raise error
