"""The content of a chat's message: a text, or parts with pictures and videos before it."""

from collections.abc import Sequence
from typing import Any

from ....protocol.errors import RequestError
from ...media.sources.parts import take_media

Content = str | list[dict[str, Any]]


def content_of(media: Sequence[dict[str, Any]], text: str) -> Content:
    return [*media, *([{"type": "text", "text": text}] if text else [])] if media else text


def shown_content(content: Content) -> str:
    """The text, and how many media precede it."""
    if isinstance(content, str):
        return content
    text = "\n".join(part["text"] for part in content if "text" in part)
    count = sum("text" not in part for part in content)
    return f"[{count} attached] {text}".strip() if count else text


def is_content(value: Any) -> bool:
    """Whether a content may be loaded from a file: nothing in it names another file or a URL, which would be opened."""
    if isinstance(value, str):
        return True
    if not isinstance(value, list) or not value:
        return False
    try:
        [message], _ = take_media([{"content": value}], may_open=False)
    except RequestError:
        return False
    return all(map(_is_text_or_taken, message["content"]))


def _is_text_or_taken(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("type") in ("image", "video") or isinstance(part.get("text"), str))
