"""The state that the commands of a chat can change: the conversation, the model, and its sampling parameters."""

from dataclasses import dataclass

from .conversation import Conversation
from .model import ChatModel
from .parameters import Parameters


@dataclass
class ChatState:
    model: ChatModel
    parameters: Parameters
    conversation: Conversation

    @classmethod
    def begun(cls, model: ChatModel, chosen: dict[str, object]) -> "ChatState":
        parameters = Parameters(chosen, model.llm.get_default_sampling_params())
        return cls(model, parameters, Conversation(model.llm, parameters.params))

    def set(self, name: str, text: str) -> str:
        said = self.parameters.set(name, text)
        self.conversation.params = self.parameters.params
        return said

    def change_model(self, name: str) -> None:
        """The conversation goes on; where the other can't be loaded, with the model that there was."""
        try:
            self.model.change(name)
        finally:
            self.parameters.defaults = self.model.llm.get_default_sampling_params()
            self.conversation.llm, self.conversation.params = self.model.llm, self.parameters.params
