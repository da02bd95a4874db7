"""Saves a conversation to a file and loads it: a JSON list of messages, in the form of `LLM.chat`."""

import json
import os
from pathlib import Path
from typing import Any

from ....protocol.errors import PenstockError
from ..generation.output import output_to
from .content import is_content, shown_content
from .conversation import Conversation


def save(conversation: Conversation, name: str) -> str:
    path = _path(name)
    text = json.dumps(conversation.messages, ensure_ascii=False, indent=1) + "\n"
    try:
        if _holds_something_else(path):
            return f"{path} exists and is no saved conversation; it was left alone. Choose another name."
        with output_to(str(path)) as output:
            output.write(text)
    except OSError as error:
        return f"{path} was not written: {os.strerror(error.errno or 0)}."
    except PenstockError as error:
        return str(error)
    return f"{messages_are(len(conversation.messages))} in {path}, as LLM.chat takes them."


def load(conversation: Conversation, name: str) -> str:
    """Replace the conversation by that of a file."""
    path = _path(name)
    try:
        if path.exists() and not path.is_file():
            return f"{path} is not a file. Name one: /load FILE"
        messages = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return f"{path} was not read: {os.strerror(error.errno or 0)}."
    except (ValueError, RecursionError) as error:
        return f"{path} is not JSON ({type(error).__name__}); the conversation is as it was."
    if not is_conversation(messages):
        what = 'no list of messages such as {"role": "user", "content": "…"}'
        return f"{path} is {what}; the conversation is as it was."
    return _taken(conversation, messages)


def is_conversation(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) and is_content(message.get("content"))
        for message in value
    )


def _taken(conversation: Conversation, messages: list[dict[str, Any]]) -> str:
    conversation.reset()
    rest = list(messages)
    conversation.system = shown_content(rest.pop(0)["content"]) if rest and rest[0]["role"] == "system" else ""
    conversation.turns = rest
    asks = ""
    if rest and rest[-1]["role"] == "user":
        conversation.unanswered = rest.pop()["content"]
        asks = "; the last one has no answer yet: /retry asks for it, another message replaces it"
    return f"{messages_are(len(messages))} there{asks}."


def messages_are(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"


def _path(name: str) -> Path:
    return Path(os.path.expanduser(unquoted(name)))


def unquoted(name: str) -> str:
    """Remove quotes like a shell: people quote names with spaces, and so do terminals into which a file is dragged."""
    is_quoted = len(name) > 2 and name[0] == name[-1] and name[0] in "\"'"
    return name[1:-1] if is_quoted and not os.path.exists(name) else name


def _holds_something_else(path: Path) -> bool:
    """Whether saving would overwrite anything but a list of messages."""
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return False
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return True
    return not isinstance(held, list) or not all(isinstance(item, dict) and "role" in item for item in held)
