"""Takes pictures and videos out of conversations and prompts; `source.py` reads each of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....protocol.errors import RequestError
from ....protocol.fields.rules import shown
from ....protocol.media import MediumKind
from .encoded_media import EncodedMedium
from .source import SOURCE_NAMES, check_source, encoded, is_frame

# Types of content parts, and their kinds of media.
_PART_TYPES: dict[str, MediumKind] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "video": "video",
    "video_url": "video",
    "input_video": "video",
}


def medium_of(part_type: Any) -> MediumKind | None:
    """The kind of medium in a content part of this type; None if it is no medium."""
    return _PART_TYPES.get(part_type) if isinstance(part_type, str) else None


# --- conversations ---------------------------------------------------------------------------------------------------


def take_media(messages: Sequence[Any], *, may_open: bool) -> tuple[list[Any], list[EncodedMedium]]:
    """Remove the media from a conversation's messages, and return them in order.

    Each leaves a part `{"type": "image"}` or `{"type": "video"}`, which templates turn into a placeholder. The caller's
    objects are not changed; messages without media stay the same objects.
    """
    media: list[EncodedMedium] = []

    def take(kind: MediumKind, part: Mapping[str, Any]) -> None:
        media.append(_encoded_part(kind, part, may_open))

    return [_without_media(message, take) for message in messages], media


def has_media(messages: Sequence[Any]) -> bool:
    """Whether a conversation has parts that are pictures or videos, valid or not."""
    return any(
        _kind_of_part(part) is not None
        for message in messages
        if isinstance(message, Mapping)
        for part in _parts(message)
    )


def bare_media(messages: Any) -> Any:
    """A conversation with each of its media replaced by a part {"type": "image"} or {"type": "video"}, unopened."""
    if not isinstance(messages, (list, tuple)) or not has_media(messages):
        return messages
    return [_without_media(message, lambda kind, part: None) for message in messages]


def texts_alone(messages: Sequence[Any]) -> list[Any]:
    """A conversation without its media."""
    return [_text_alone(message) for message in messages]


def _text_alone(message: Any) -> Any:
    if not isinstance(message, Mapping) or not _parts(message):
        return message
    return {**message, "content": [part for part in _parts(message) if _kind_of_part(part) is None]}


def _parts(message: Mapping[str, Any]) -> Sequence[Any]:
    content = message.get("content")
    return content if isinstance(content, (list, tuple)) else ()


def _without_media(message: Any, take: Callable[[MediumKind, Mapping[str, Any]], None]) -> Any:
    """The message with each media part, which is passed to `take`, replaced by a bare part."""
    if not isinstance(message, Mapping) or all(_kind_of_part(part) is None for part in _parts(message)):
        return message
    parts: list[Any] = []
    for part in _parts(message):
        if (kind := _kind_of_part(part)) is None:
            parts.append(part)
        else:
            take(kind, part)
            parts.append({"type": kind})
    return {**message, "content": parts}


def _kind_of_part(part: Any) -> MediumKind | None:
    if not isinstance(part, Mapping):
        return None
    kind = part.get("type")
    if isinstance(kind, str):
        return _PART_TYPES.get(kind)
    return next((each for each in ("image", "video") if each in part or f"{each}_url" in part), None)


def check_media_parts(messages: Sequence[Any]) -> None:
    """Raise `RequestError` for a part without a medium, or with an unknown option; read none."""

    def check(kind: MediumKind, part: Mapping[str, Any]) -> None:
        check_source(kind, *_source_and_options(kind, part))

    for message in messages:
        _without_media(message, check)


def _encoded_part(kind: MediumKind, part: Mapping[str, Any], may_open: bool) -> EncodedMedium:
    source, options = _source_and_options(kind, part)
    return encoded(kind, source, options, may_open=may_open)


def _source_and_options(kind: MediumKind, part: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    source = next((part[name] for name in SOURCE_NAMES[kind] if part.get(name) is not None), None)
    if source is None:
        if part.get("file_id") is not None:
            raise RequestError(f"{part.get('type')}: there are no uploaded files here; send the {kind} as data: URL.")
        raise RequestError(f"A part of type {shown(part.get('type'))} holds no {kind}: give {kind}_url or {kind}.")
    return source, {name: value for name, value in part.items() if name not in SOURCE_NAMES[kind] and value is not None}


# --- prompts ---------------------------------------------------------------------------------------------------------


def media_of_prompt(given: Any, *, may_open: bool) -> list[EncodedMedium]:
    """The media of a prompt's `multimodal_data`, images first."""
    return [encoded(kind, source, may_open=may_open) for kind, source in sources_of_prompt(given)]


def sources_of_prompt(given: Any) -> list[tuple[MediumKind, Any]]:
    """The source of each medium in `multimodal_data`: `{"image": [...], "video": [...]}`.

    A video may be a dict of its own: `{"video": bytes, "max_frames": 30}`.
    """
    if not isinstance(given, Mapping):
        raise RequestError(f"multimodal_data must be a dict such as {{'image': [...]}}, not {type(given).__name__}.")
    kinds: dict[str, MediumKind] = {"image": "image", "images": "image", "video": "video", "videos": "video"}
    if unknown := [name for name in given if name not in kinds]:
        raise RequestError(
            f"multimodal_data: {shown(unknown[0])} is nothing that a model sees; it may have 'image' and 'video'."
        )
    return [
        (kind, source)
        for wanted in ("image", "video")
        for name, kind in kinds.items()
        if kind == wanted and given.get(name) is not None
        for source in _sources(kind, given[name])
    ]


def _sources(kind: MediumKind, given: Any) -> Sequence[Any]:
    """The media of one kind: a list, or a single one. A flat list of frames is one video."""
    if not isinstance(given, (list, tuple)):
        return [given]
    if kind == "video" and given and all(is_frame(each) for each in given):
        return [given]
    return given
