"""The model of a chat, which the user may replace, and the rest of the state that commands change.

Two models may not fit into memory: the old one is closed first, and loaded again if the new one fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.options.config import EngineConfig
from ...requests.request import guarded
from ..shared.cached_models import bundled_models, cached_models
from ..shared.loading import load
from ..shared.model_options import require_model
from .conversation import Conversation
from .parameters import Parameters

# Engine options that are specific to one model and don't carry over to another.
_OF_ONE_MODEL = ("tokenizer", "revision", "chat_template", "served_model_name")


class ChatModel:
    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self._options = options
        self.llm = load(name, options)
        self.is_open = True

    def __enter__(self) -> "ChatModel":
        return self

    def __exit__(self, *exception: object) -> None:
        self.llm.close()

    def change(self, name: str) -> None:
        """Change the model; raises if the new one can't be loaded: then the old one is still in use, or again if it
        `is_open`."""
        options = {key: value for key, value in self._options.items() if key not in _OF_ONE_MODEL}
        try:
            require_model(EngineConfig.from_options(name, **options))
        except TypeError as error:
            raise ConfigError(str(error)) from error
        self.is_open = False
        self.llm.close()
        try:
            self.llm = load(name, options)
        except BaseException:
            self.llm = load(self.name, self._options)
            self.is_open = True
            raise
        self.name, self._options, self.is_open = name, options, True


def known_models() -> Iterator[str]:
    """The models on this machine that have a name."""
    for found in (*bundled_models(), *cached_models()):
        yield found.name


@dataclass
class ChatState:
    """The state that a chat's commands can change: the conversation, the model, and its sampling parameters."""

    model: ChatModel
    parameters: Parameters
    conversation: Conversation

    @classmethod
    def begun(cls, model: ChatModel, chosen: dict[str, object]) -> "ChatState":
        parameters = Parameters(chosen, guarded(model.llm.get_default_sampling_params()))
        return cls(model, parameters, Conversation(model.llm, parameters.params))

    def set(self, name: str, text: str) -> str:
        said = self.parameters.set(name, text)
        self.conversation.params = self.parameters.params
        return said

    def change_model(self, name: str) -> None:
        """Continue the conversation with another model; if that can't be loaded, with the old one."""
        try:
            self.model.change(name)
        finally:
            self.parameters.defaults = guarded(self.model.llm.get_default_sampling_params())
            self.conversation.llm, self.conversation.params = self.model.llm, self.parameters.params
