"""Refuses roles that a chat template ignores: most templates would leave such a message out of the prompt.

The usual roles pass; for any other it is tried whether the template renders what such a message says, since templates
have roles of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...protocol.errors import RequestError
from ...protocol.fields.suggestion import suggestion
from ..requests.content_parts import Parts

KNOWN = ("system", "developer", "user", "assistant", "tool", "function")
# In the place of what a message says: letters that no filter changes but for their case.
_MARK = "penstockroleprobe"

Chat = Sequence[Mapping[str, Any]]


def check_roles(chat: Chat, render: Callable[[Chat], str]) -> None:
    """Raises `RequestError` for a role whose messages all are left out."""
    unusual = list(dict.fromkeys(message["role"] for message in chat if message["role"] not in KNOWN))
    if not unusual:
        return
    marks = {role: f"{_MARK}{number}x" for number, role in enumerate(unusual)}
    try:
        text = render([_marked(message, marks.get(message["role"])) for message in chat]).casefold()
    except RequestError:  # it reads what such a message says, in a form that no mark has
        return
    for role, mark in marks.items():
        if mark not in text:
            sentence = f"The chat template knows no role {role[:64]!r}: what such a message says would be left out."
            raise RequestError(sentence + suggestion(role, KNOWN))


def with_hint(refusal: str, chat: Chat) -> str:
    """Add the role that was probably meant to a template's own refusal."""
    unusual = (message["role"] for message in chat if message["role"] not in KNOWN)
    hint = next(filter(None, (suggestion(role, KNOWN) for role in unusual)), "")
    return refusal + ("." if hint and not refusal.endswith((".", "!", "?")) else "") + hint


def _marked(message: Mapping[str, Any], mark: str | None) -> Mapping[str, Any]:
    if mark is None:
        return message
    content = message["content"]
    return {**message, "content": Parts([{"type": "text", "text": mark}]) if isinstance(content, list) else mark}
