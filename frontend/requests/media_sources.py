"""Turns what callers give as pictures and videos into `EncodedMedium`: the bytes of a file, or plain pixels.

Paths and URLs are opened by the caller's own process alone (`may_open`); the daemon and the HTTP server take what a
request carries. Nothing is decoded here but objects that the caller's process holds already: Pillow's images, arrays.
"""

import base64
import binascii
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ...protocol.errors import LimitError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion
from ...protocol.media import MediumKind
from ...protocol.wire import Part

# Of one medium, as it is sent.
MOST_BYTES: dict[MediumKind, int] = {"image": 64 << 20, "video": 256 << 20}
MOST_FRAMES = 4096  # in a list
RATES = (0.001, 1000.0)  # frames a second that can be meant; positions in time are made of them
A: dict[MediumKind, str] = {"image": "An image", "video": "A video"}
_MOST_HEADER = 200  # characters of a data: URL before its comma

# What a request may say of how one medium is read, and the names that others have for it.
OPTIONS = ("min_pixels", "max_pixels", "fps", "num_frames", "min_frames", "max_frames", "sample_fps")
_OTHER_NAMES = {"nframes": "num_frames", "raw_fps": "sample_fps"}
_LOW_DETAIL_PIXELS = 512 * 512

# A content part's types, what medium each is, and under which names it may hold the source.
_PART_TYPES: dict[str, MediumKind] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "video": "video",
    "video_url": "video",
    "input_video": "video",
}
_SOURCE_NAMES: dict[MediumKind, tuple[str, ...]] = {
    "image": ("image", "image_url", "url", "path", "base64", "bytes", "data"),
    "video": ("video", "video_url", "url", "path", "base64", "bytes", "data"),
}


class EncodedMedium(Part):
    """One picture or video as its caller gave it; clients send it to the daemon."""

    kind: MediumKind
    form: Literal["file", "files", "pixels"]
    data: bytes  # of a file; of several, each a frame, packed by msgspec; or uint8 [frames, height, width, 3]
    shape: tuple[int, int, int] = (0, 0, 0)  # of pixels
    options: dict[str, float] = {}


_media = msgspec.msgpack.Decoder(list[EncodedMedium])


# --- conversations and prompts ---------------------------------------------------------------------------------------


def take_media(messages: Sequence[Any], *, may_open: bool) -> tuple[list[Any], list[EncodedMedium]]:
    """Take the media out of a conversation's messages, in their order.

    Each leaves a part `{"type": "image"}` or `{"type": "video"}`, which templates turn into a placeholder. Nothing of
    the caller's is changed; messages without media stay the same objects.
    """
    media: list[EncodedMedium] = []

    def take(kind: MediumKind, part: Mapping[str, Any]) -> None:
        media.append(_encoded_part(kind, part, may_open))

    return [_without_media(message, take) for message in messages], media


def has_media(messages: Sequence[Any]) -> bool:
    """Whether a conversation has parts that are pictures or videos, good or not."""
    return any(
        _kind_of_part(part) is not None
        for message in messages
        if isinstance(message, Mapping)
        for part in _parts(message)
    )


def bare_media(messages: Any) -> Any:
    """A conversation with a part {"type": "image"} or {"type": "video"} in place of each of its media, unopened."""
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
    """The message with a bare part in place of each that is a medium, which is given to `take`."""
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


def _encoded_part(kind: MediumKind, part: Mapping[str, Any], may_open: bool) -> EncodedMedium:
    source = next((part[name] for name in _SOURCE_NAMES[kind] if part.get(name) is not None), None)
    if source is None:
        if part.get("file_id") is not None:
            raise RequestError(f"{part.get('type')}: there are no uploaded files here; send the {kind} as data: URL.")
        raise RequestError(f"A part of type {shown(part.get('type'))} holds no {kind}: give {kind}_url or {kind}.")
    options = {name: value for name, value in part.items() if _option_name(name) is not None and value is not None}
    if part.get("detail") is not None:
        options["detail"] = part["detail"]
    return encoded(kind, source, options, may_open=may_open)


def packed_media(media: Sequence[EncodedMedium]) -> bytes:
    """As a client sends them to the daemon."""
    return msgspec.msgpack.encode(media) if media else b""


def unpacked_media(packed: bytes) -> list[EncodedMedium]:
    """What a client has sent; raises `RequestError`."""
    try:
        media = _media.decode(packed)
    except msgspec.DecodeError as error:
        raise RequestError(f"The request's pictures can't be read: {error}") from None
    return [msgspec.structs.replace(medium, options=_checked_options(medium.options)) for medium in media]


def media_of_prompt(given: Any, *, may_open: bool) -> list[EncodedMedium]:
    """The media of a prompt's `multimodal_data`, images first."""
    return [encoded(kind, source, may_open=may_open) for kind, source in sources_of_prompt(given)]


def sources_of_prompt(given: Any) -> list[tuple[MediumKind, Any]]:
    """What each medium of `multimodal_data` comes from: `{"image": [...], "video": [...]}`.

    A video may be a dict of its own: `{"video": bytes, "max_frames": 30}`.
    """
    if not isinstance(given, Mapping):
        raise RequestError(f"multimodal_data must be a dict such as {{'image': [...]}}, not {_type(given)}.")
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
    """The media of one kind: a list of them, or a single one. A flat list of frames is one video."""
    if not isinstance(given, (list, tuple)):
        return [given]
    if kind == "video" and given and all(_is_frame(each) for each in given):
        return [given]
    return given


def _is_frame(source: Any) -> bool:
    return _is_pillow(source) or (_is_array(source) and len(source.shape) <= 3)


# --- one source ------------------------------------------------------------------------------------------------------


def encoded(
    kind: MediumKind, source: Any, options: Mapping[str, Any] | None = None, *, may_open: bool
) -> EncodedMedium:
    """One medium from whatever holds it; raises `RequestError` where it can't be taken."""
    options = dict(options or {})
    while isinstance(source, Mapping):
        holders = [name for name in _SOURCE_NAMES[kind] if source.get(name) is not None]
        if not holders:
            raise RequestError(f"{A[kind]} given as a dict needs {kind!r} or 'url'; this one has {_names(source)}.")
        options |= {name: value for name, value in source.items() if name not in _SOURCE_NAMES[kind]}
        source = source[holders[0]]
    checked = _checked_options(options)
    if isinstance(source, (list, tuple)):
        return _encoded_list(kind, source, checked, may_open)
    if _is_pillow(source) or _is_array(source):
        from ..media.given_pixels import pixels_of

        pixels, shape = pixels_of(kind, source)
        return EncodedMedium(kind, "pixels", pixels, shape, checked)
    return EncodedMedium(kind, "file", _content(kind, source, may_open), options=checked)


def _encoded_list(
    kind: MediumKind, frames: Sequence[Any], options: dict[str, float], may_open: bool
) -> EncodedMedium:
    """A video as a list of its frames."""
    if kind == "image":
        raise RequestError("An image is one picture; give a list of them as several parts, or as a video.")
    if not frames:
        raise RequestError("This video has no frames.")
    if len(frames) > MOST_FRAMES:
        raise LimitError(f"A list of frames may have {MOST_FRAMES:,}, and this one has {len(frames):,}.")
    if all(_is_frame(frame) for frame in frames):
        from ..media.given_pixels import pixels_of_frames

        pixels, shape = pixels_of_frames(frames)
        return EncodedMedium(kind, "pixels", pixels, shape, options)
    files, most = [], MOST_BYTES["video"]
    for frame in frames:
        files.append(_content("image", frame, may_open))
        most -= len(files[-1])
        if most < 0:
            raise _too_large("video")
    return EncodedMedium(kind, "files", msgspec.msgpack.encode(files), options=options)


def _content(kind: MediumKind, source: Any, may_open: bool) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        if memoryview(source).nbytes > MOST_BYTES[kind]:
            raise _too_large(kind)
        return _bounded(kind, bytes(source))
    if isinstance(source, str):
        return _content_of_text(kind, source, may_open)
    if isinstance(source, os.PathLike):
        return _opened(kind, os.fspath(source), may_open)
    if callable(read := getattr(source, "read", None)):
        return _bounded(kind, read(MOST_BYTES[kind] + 1))
    raise RequestError(
        f"{A[kind]} is given as bytes, a data: URL, a path, a Pillow image, or an array; this one is {_type(source)}."
    )


def _content_of_text(kind: MediumKind, text: str, may_open: bool) -> bytes:
    scheme = text[:8].partition(":")[0].lower() if ":" in text[:8] else ""
    if scheme == "data":
        return _content_of_data(kind, text)
    if scheme in ("http", "https"):
        if not may_open:
            raise _closed(kind, "a URL")
        from .media_download import downloaded

        return _bounded(kind, downloaded(kind, text, MOST_BYTES[kind]))
    return _opened(kind, text, may_open)


def _content_of_data(kind: MediumKind, url: str) -> bytes:
    """The bytes of a data: URL: base64 alone, without anything that isn't of its alphabet."""
    header, comma, payload = url[: _MOST_HEADER + 1].partition(",")
    if not comma:
        raise RequestError(f"This data: URL has no comma; write data:{kind}/…;base64,….")
    media_type, *parameters = header[len("data:") :].split(";")
    if not parameters or parameters[-1].strip().lower() != "base64":
        raise RequestError(f"A data: URL must be base64: data:{kind}/…;base64,….")
    family = media_type.strip().lower().partition("/")[0]
    if family not in ("", "application", "image", "video"):
        raise RequestError(f"A data: URL of type {shown(media_type)} is no {kind}.")
    if (len(url) - len(header)) * 3 // 4 > MOST_BYTES[kind] + 3:
        raise _too_large(kind)
    payload = url[len(header) + 1 :]
    try:
        return _bounded(kind, base64.b64decode(payload.encode("ascii"), validate=True))
    except (binascii.Error, UnicodeEncodeError):
        raise RequestError(f"The base64 of this {kind}'s data: URL is not valid.") from None


def _opened(kind: MediumKind, path: str, may_open: bool) -> bytes:
    if not may_open:
        raise _closed(kind, "a file")
    if path[:5].lower() == "file:":
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise RequestError(f"A file: URL names a file of this machine: file:///…, not {shown(path)}.")
        path = unquote(parts.path)
    try:
        with open(os.path.expanduser(path), "rb") as file:
            content = file.read(MOST_BYTES[kind] + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError(f"The {kind} {shown(path)} can't be read: {reason}.") from None
    return _bounded(kind, content)


def _bounded(kind: MediumKind, content: Any) -> bytes:
    if not isinstance(content, bytes):
        raise RequestError(f"{A[kind]} is read as bytes; this one gives {_type(content)}. Open it in binary mode.")
    if not content:
        raise RequestError(f"This {kind} is empty.")
    if len(content) > MOST_BYTES[kind]:
        raise _too_large(kind)
    return content


def _too_large(kind: MediumKind) -> LimitError:
    return LimitError(f"{A[kind]} may have {MOST_BYTES[kind] >> 20} MiB, and this one has more.")


def _closed(kind: MediumKind, what: str) -> RequestError:
    return RequestError(f"A daemon opens no URL and no file: this {kind} is {what}. Send it as data: URL.")


# --- options ---------------------------------------------------------------------------------------------------------


def _option_name(name: Any) -> str | None:
    name = _OTHER_NAMES.get(name, name)
    return name if name in OPTIONS else None


def _checked_options(given: Mapping[str, Any]) -> dict[str, float]:
    """How a medium is to be read, by the names in `OPTIONS`; unknown names are refused."""
    options: dict[str, float] = {}
    for given_name, value in given.items():
        if given_name in ("type", "detail", "format", "text", "cache_control", "uuid") or value is None:
            if given_name == "detail":
                _check_detail(value, options)
            continue
        name = _option_name(given_name)
        if name is None:
            raise RequestError(
                f"A medium has no option {shown(given_name)}; it may have {', '.join(OPTIONS)}."
                f"{suggestion(str(given_name), OPTIONS)}"
            )
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name.endswith("fps"):
            if not is_number or not RATES[0] <= value <= RATES[1]:
                raise RequestError(f"{given_name} must be frames a second, from {RATES[0]:g} to {RATES[1]:g}.")
            options[name] = float(value)
            continue
        if not is_number or not 0 < value < 2**31 or value % 1:
            raise RequestError(f"{given_name} must be a whole number above 0.")
        options[name] = int(value)
    return options


def _check_detail(detail: Any, options: dict[str, float]) -> None:
    if detail not in (None, "auto", "low", "high"):
        raise RequestError(f"detail is 'auto', 'low' or 'high', not {shown(detail)}.")
    if detail == "low":
        options.setdefault("max_pixels", _LOW_DETAIL_PIXELS)


# --- types -----------------------------------------------------------------------------------------------------------


def _is_pillow(source: Any) -> bool:
    """Without importing Pillow: whoever holds one of its images has."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(source, module.Image)


def _is_array(source: Any) -> bool:
    return hasattr(source, "__array__") and hasattr(source, "shape") and not _is_pillow(source)


def _type(value: Any) -> str:
    return type(value).__name__


def _names(given: Mapping[str, Any]) -> str:
    return ", ".join(shown(name) for name in list(given)[:5]) or "nothing"
