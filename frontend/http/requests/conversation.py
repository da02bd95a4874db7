"""Renders a request's conversation to a prompt with the model's chat template.

It also checks a request's arguments for the template: no names that the server itself sets, and no template of its own
unless the server trusts its clients.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ....protocol.errors import RequestError
from ...media.sources.encoded_media import EncodedMedium
from ...media.sources.parts import take_media
from ...requests.prompts import RenderedPrompt
from ..answers.errors import ApiError
from ..loaded_model import LoadedModel
from ..schemas.chat import ChatMessage, ChatRequest, Tool

# Arguments that the server gives to templates, and functions that templates call.
RESERVED = frozenset({
    "messages", "tools", "documents", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message",
    "conversation", "return_tensors", "return_dict", "raise_exception", "strftime_now", "namespace", "dict", "range",
    "lipsum", "cycler", "joiner", "loop", "self", "caller", "bos_token", "eos_token", "unk_token", "pad_token",
})  # fmt: skip


def template_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    options = dict(given or {})
    for name in options:
        if name in RESERVED or not name.isidentifier() or name.startswith("_"):
            raise ApiError(400, f"chat_template_kwargs: {name!r} is not a name that a request may give to a template.")
    return options


def own_template(request: ChatRequest, *, is_trusted: bool) -> str | None:
    if request.chat_template is None:
        return None
    require_trust(is_trusted=is_trusted)
    if "{" not in request.chat_template:  # otherwise it could be a file's name
        raise ApiError(400, "chat_template must be a template's text.", param="chat_template")
    return request.chat_template


def require_trust(*, is_trusted: bool) -> None:
    if not is_trusted:
        raise ApiError(400, "chat_template: this server takes no templates from requests.", param="chat_template")


def rendered(
    model: LoadedModel,
    plain: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
    *,
    chat_template: str | None = None,
    adds_generation_prompt: bool = True,
) -> RenderedPrompt:
    """The prompt of messages in the form of `as_messages`."""
    media: list[EncodedMedium] = []
    try:
        if model.sees:
            plain, media = take_media(plain, may_open=False)
        text = model.render(plain, chat_template, tools, adds_generation_prompt, options)
    except RequestError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ApiError(400, f"This conversation can't be rendered: {type(error).__name__}.") from error
    return RenderedPrompt(text, tools or (), media, plain)


def as_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages in the form that templates read: arguments of earlier calls are objects."""
    plain = [msgspec.to_builtins(message) for message in messages]
    for message in plain:
        if message["role"] == "assistant" and isinstance(message.get("content"), list):
            message["content"] = [_without_refusal(part) for part in message["content"]]
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = _as_object(call["function"]["arguments"])
            call["type"] = "function"
    return plain


def _without_refusal(part: dict[str, Any]) -> dict[str, Any]:
    """Turn a refusal of the assistant into text: templates have nothing else."""
    return {"type": "text", "text": part.get("refusal")} if part["type"] == "refusal" else part


def _as_object(arguments: Any) -> Any:
    try:
        found = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments


def as_tools(tools: Sequence[Tool] | None) -> list[dict[str, Any]]:
    return [{"type": "function", "function": msgspec.to_builtins(tool.function)} for tool in tools or ()]
