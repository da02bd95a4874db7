"""Loads, unloads and lists LoRA adapters: the engine answers once every rank has.

Any number of threads may ask at once; each waits for the answer to its own question.
"""

import itertools
import os
import queue
from collections.abc import Callable
from pathlib import Path

from ...protocol.adapter_messages import ListLoras, LoadLora, LoraAnswer, UnloadLora
from ...protocol.errors import AdapterError
from ...protocol.options.config import EngineConfig
from ..models.file_stamps import FileStamps, stamps_of
from .session import adapter_folder, check_adapter_name
from .tree.transport import TreeTransport

_LOOK_SECONDS = 1.0  # between two checks whether the tree still lives


class Adapters:
    def __init__(self, config: EngineConfig, transport: TreeTransport) -> None:
        self.config = config
        self.transport = transport
        self._numbers = itertools.count()
        self._waiting: dict[int, queue.SimpleQueue[LoraAnswer]] = {}
        self.loaded: dict[str, str] = {}  # name → folder
        self.stamps: dict[str, FileStamps] = {}  # of their files
        transport.on_lora_answer = self._hand_out

    def load(self, name: str, path: str | os.PathLike[str]) -> None:
        """Load an adapter; returns when requests may name it, or raises `AdapterError`."""
        folder = adapter_folder(name, path)
        if not self.config.enable_lora:
            raise AdapterError("load_lora needs room for adapters: start with enable_lora=True.", "disabled")
        stamps = stamps_of([Path(folder), *Path(folder).glob("*")])
        self._ask(lambda query: LoadLora(query, name, folder))
        self.loaded[name], self.stamps[name] = folder, stamps

    def unload(self, name: str) -> None:
        """Unload an adapter; raises `AdapterError` while requests use it."""
        check_adapter_name(name)
        self._ask(lambda query: UnloadLora(query, name))
        self.loaded.pop(name, None)
        self.stamps.pop(name, None)

    def names(self) -> list[str]:
        return self._ask(ListLoras).names

    def folders(self) -> dict[str, str]:
        return dict(self.loaded)

    def _ask(self, question: Callable[[int], LoadLora | UnloadLora | ListLoras]) -> LoraAnswer:
        self.transport.check()
        query = next(self._numbers)
        arrived = self._waiting[query] = queue.SimpleQueue()
        try:
            with self.transport.waiting():
                self.transport.tree.engine.send(question(query))
                answer = self._awaited(arrived)
        finally:
            del self._waiting[query]
        if answer.reason:
            raise AdapterError(answer.message, answer.reason)
        return answer

    def _awaited(self, arrived: "queue.SimpleQueue[LoraAnswer]") -> LoraAnswer:
        """Wait as long as loading takes, unless the tree dies."""
        while True:
            try:
                return arrived.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self.transport.check()

    def _hand_out(self, answer: LoraAnswer) -> None:
        if (waiting := self._waiting.get(answer.query)) is not None:
            waiting.put(answer)
