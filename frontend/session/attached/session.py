"""A model of the daemon, opened for use.

The daemon renders templates and converts tokens and text; a tokenizer is read here only if the caller wants one.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....protocol.attach import AskAdapters, AskLoad, AskRender, AskUnload, Attached
from ....protocol.errors import AdapterError, RequestError
from ....protocol.fields.rules import FLAG
from ....protocol.options.config import EngineConfig
from ...media.sources.parts import bare_media
from ...models.pooled_model import PooledModel
from ...requests.conversation_checks import check_template_options
from ...requests.prompts import Conversation, Messages
from ...requests.tool_schemas import check_tools, tool_schema
from ..session import Session, adapter_folder, check_adapter_name
from .door import AttachedDoor, on_the_wire
from .request import AttachedRequest
from .transport import DaemonTransport

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer


class AttachedSession(Session[AttachedRequest]):
    transport: DaemonTransport

    def __init__(self, transport: DaemonTransport, attached: Attached, config: EngineConfig, *, is_quiet: bool) -> None:
        self.transport = transport
        self.attached = attached
        self.plan = attached.plan
        self.daemon = str(transport.connection.address)
        self.config = config
        self.is_quiet = is_quiet
        self.door = AttachedDoor(attached, lambda: self.longest_pooled)
        self.adapters = AttachedAdapters(transport, attached)

    @property
    def tree_config(self) -> EngineConfig:
        return self.attached.config

    @property
    def model_folders(self) -> tuple[Path, Path]:
        return Path(self.attached.folder), Path(self.attached.tokenizer_folder)

    @cached_property
    def tokenizer(  # type: ignore[override]  # read when somebody asks for it
        self,
    ) -> "Tokenizer":
        from ...text.tokenizer import Tokenizer

        return Tokenizer(Path(self.attached.tokenizer_folder), Path(self.attached.folder))

    @cached_property
    def pooled(self) -> PooledModel | None:
        return super().pooled  # reads the model's files

    def wait_until_ready(self) -> None:
        """Return at once: the daemon answers `Attach` once the model is loaded."""
        try:
            self._read_replay()
            self._take_up_replay()
        except BaseException:
            self.transport.close()
            raise
        if self.replay is not None:
            self.transport.on_close = self.replay.close

    def render(
        self,
        conversation: Messages,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> str:
        add_generation_prompt = FLAG.checked("add_generation_prompt", add_generation_prompt, RequestError)
        check_template_options(template_options)
        messages = bare_media(conversation) if self.sees else conversation
        wire = on_the_wire(Conversation(messages, tools, chat_template, template_options or {}), sees=self.sees)
        return self.transport.ask(lambda query: AskRender(query, wire, add_generation_prompt)).text

    def render_batch(
        self,
        conversations: Iterable[Messages],
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[Conversation]:
        """One prompt per conversation; the daemon renders it."""
        if tools is not None:
            check_tools(tools)
        tools = None if tools is None else [tool_schema(tool) for tool in tools]
        check_template_options(template_options)
        return [
            Conversation(conversation, tools, chat_template, template_options or {}) for conversation in conversations
        ]


class AttachedAdapters:
    """The model's LoRA adapters, shared by all of its clients."""

    def __init__(self, transport: DaemonTransport, attached: Attached) -> None:
        self.transport = transport
        self.attached = attached

    def load(self, name: str, path: str | os.PathLike[str]) -> None:
        """Load an adapter; returns when requests may name it, or raises `AdapterError`."""
        folder = adapter_folder(name, path)
        if not self.attached.enable_lora:
            raise AdapterError("load_lora needs room for adapters: serve the model with enable_lora=True.", "disabled")
        self.transport.ask(lambda query: AskLoad(query, name, folder))

    def unload(self, name: str) -> None:
        """Unload an adapter; raises `AdapterError` while requests use it."""
        check_adapter_name(name)
        self.transport.ask(lambda query: AskUnload(query, name))

    def names(self) -> list[str]:
        return self.transport.ask(AskAdapters).names

    def folders(self) -> dict[str, str]:
        return self.transport.ask(AskAdapters).folders
