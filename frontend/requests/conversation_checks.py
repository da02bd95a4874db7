"""Checks a conversation before it is rendered: each message has a role and a content, each option an unreserved name.

The caller's own objects are checked, not the copies for templates and sockets: in those, an unknown value is replaced
by its type's name, which would pass for text. This module is light to import.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...protocol.errors import RequestError
from ...protocol.fields.suggestion import slip
from ..media.sources.parts import medium_of

# Names under which callers give an assistant's thoughts.
REASONING = ("reasoning_content", "thinking", "reasoning")
# Templates may read any other name: only a likely misspelling of one of these is refused.
_OF_MESSAGES = (
    "role", "content", "name", "tool_calls", "tool_call_id", "tool_name", "refusal", "audio", "annotations",
    "function_call", *REASONING,
)  # fmt: skip
_OF_TEXTS = ("type", "text", "cache_control")
# Not allowed in `chat_template_kwargs`: each has an argument of its own.
_OWN_ARGUMENTS = {"messages", "tokenize", "add_generation_prompt", "tools", "chat_template"}


def check_conversation(conversation: Any, *, sees: bool = False) -> None:
    """Raise `RequestError` for a conversation that no template could render. A model that `sees` may have parts of
    the types image and video, from which the media have been removed."""
    if not isinstance(conversation, (list, tuple)) or any(isinstance(each, (list, tuple)) for each in conversation):
        raise RequestError('A conversation is a list of messages such as {"role": "user", "content": "…"}.')
    if not conversation:
        raise RequestError("The conversation is empty: it needs at least one message.")
    for message in conversation:
        check_names("A message", message, _OF_MESSAGES)
        _check_message(message, sees)


def check_template_options(options: Mapping[str, Any] | None) -> None:
    if options is not None and not isinstance(options, Mapping):
        kind = type(options).__name__
        raise RequestError(f"chat_template_kwargs must be a dict of options for the template, not {kind}.")
    if taken := _OWN_ARGUMENTS & (options or {}).keys():
        raise RequestError(f"chat_template_kwargs: {min(taken)!r} is an argument of the call itself.")


def check_names(what: str, holder: Any, known: tuple[str, ...]) -> None:
    """Raise `RequestError` for a misspelt key, which would be ignored."""
    if isinstance(holder, Mapping):
        for name in holder:
            if name not in known and (meant := slip(name, known)) is not None:
                raise RequestError(f"{what} has no {name!r}. Did you mean {meant}?")


def _check_message(message: Any, sees: bool) -> None:
    role = _value(message, "role")
    if not isinstance(role, str):
        raise RequestError(f'A message is a dict with a "role" and a "content"; {_fault("this one", message, "role")}.')
    if role != "assistant" and _value(message, "tool_calls"):
        raise RequestError(
            f"tool_calls belong to the assistant, and this is a {role[:64]} message. The result of a call has the "
            'role "tool".'
        )
    if calls := _value(message, "tool_calls"):
        _check_calls(calls)
    content = _value(message, "content")
    if isinstance(content, (list, tuple)):
        for part in content:
            _check_part(part, sees)
    elif not isinstance(content, str) and not (content is None and _may_say_nothing(message, role)):
        raise RequestError(
            f"The content of a message must be text or a list of text parts; this {role[:64]} message's is "
            f"{'missing' if content is None else type(content).__name__}."
        )


def _check_calls(calls: Any) -> None:
    """Check calls; templates read a call's function, or the call itself as one."""
    are_listed = isinstance(calls, (list, tuple))
    if not are_listed or any(_value(call, "function") is None and _value(call, "name") is None for call in calls):
        raise RequestError(
            'tool_calls must be a list of calls such as {"type": "function", "function": {"name": "…", "arguments": '
            '{"…": "…"}}}.'
        )


def _may_say_nothing(message: Any, role: str) -> bool:
    """Whether a message needs no content: a model's turn may have only calls or thoughts."""
    return role == "assistant" and any(_value(message, name) for name in ("tool_calls", *REASONING))


def _check_part(part: Any, sees: bool) -> None:
    if isinstance(part, str):
        return
    kind = _value(part, "type")
    if sees and kind in ("image", "video"):
        return
    if kind not in (None, "text"):
        shown = repr(kind)[:64] if isinstance(kind, str) else type(kind).__name__
        if not sees and medium_of(kind) is not None:
            raise RequestError(
                f"This model sees nothing: a part of a message must be text, and this one is of type {shown}."
            )
        kinds = "text, an image or a video" if sees else "text"
        raise RequestError(f"Content of type {shown} is not supported: a part of a message must be {kinds}.")
    check_names("A part of a message", part, _OF_TEXTS)
    if not isinstance(_value(part, "text"), str):
        fault = _fault("this one", part, "text")
        raise RequestError(f'A part of a message must be text, {{"type": "text", "text": "…"}}; {fault}.')


def _value(holder: Any, name: str) -> Any:
    """The value of a dict, a dataclass or a pydantic model under a name."""
    if type(holder) is dict or isinstance(holder, Mapping):
        return holder.get(name)
    is_read = dataclasses.is_dataclass(holder) or callable(getattr(holder, "model_dump", None))
    return getattr(holder, name, None) if is_read and not isinstance(holder, type) else None


def _fault(subject: str, holder: Any, name: str) -> str:
    """Describe the fault of a message or part that should have a text under a name."""
    value = _value(holder, name)
    if value is not None:
        return f"the {name} of {subject} is {type(value).__name__}"
    return f"{subject} has no {name}" if isinstance(holder, Mapping) else f"{subject} is {type(holder).__name__}"
