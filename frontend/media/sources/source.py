"""Converts any source of a picture or video into an `EncodedMedium`: the bytes of a file, or plain pixels.

Only the caller's own process opens paths and URLs (`may_open`); the daemon and the HTTP server use only the request's
own data. Nothing is decoded here except objects in the caller's process: Pillow's images, arrays.
"""

import base64
import binascii
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from ....protocol.errors import LimitError, RequestError
from ....protocol.fields.rules import shown
from ....protocol.files.model_file import open_regular, read_regular
from ....protocol.media import MediumKind
from .encoded_media import MOST_FRAMES, EncodedMedium, checked_options

# of one medium, as it is sent
MOST_BYTES: dict[MediumKind, int] = {"image": 64 << 20, "video": 256 << 20}
A: dict[MediumKind, str] = {"image": "An image", "video": "A video"}
_LONGEST_SCHEME = 16
_MOST_HEADER = 200  # characters of a data: URL before its comma
# Keys under which a part, or a dict, may have the source.
SOURCE_NAMES: dict[MediumKind, tuple[str, ...]] = {
    "image": ("image", "image_url", "url", "path", "base64", "bytes", "data"),
    "video": ("video", "video_url", "url", "path", "base64", "bytes", "data"),
}


def encoded(
    kind: MediumKind, source: Any, options: Mapping[str, Any] | None = None, *, may_open: bool
) -> EncodedMedium:
    """Read one medium from any source; raises `RequestError` if it can't be used."""
    source, checked = _unwrapped(kind, source, options or {})
    if isinstance(source, (list, tuple)):
        return _encoded_list(kind, source, checked, may_open)
    if _is_pillow(source) or _is_array(source):
        from .given_pixels import pixels_of

        pixels, shape = pixels_of(kind, source)
        return EncodedMedium(kind, "pixels", pixels, shape, checked)
    return EncodedMedium(kind, "file", _content(kind, source, may_open), options=checked)


def check_source(kind: MediumKind, source: Any, options: Mapping[str, Any]) -> None:
    """Raise the errors of `encoded` for options, for a type that has no medium, or for an impossible address;
    external data isn't read."""
    source, _ = _unwrapped(kind, source, options)
    if kind == "video" and isinstance(source, (list, tuple)):
        for frame in source[:MOST_FRAMES]:
            if not is_frame(frame):
                check_source("image", frame, {})
    elif isinstance(source, os.PathLike) or (isinstance(source, str) and _scheme(kind, source) == "file"):
        with _reading_in_words(kind, os.fspath(source)):
            os.close(open_regular(_path(os.fspath(source))))
    elif isinstance(source, (list, tuple)):
        _encoded_list(kind, source, {}, may_open=False)
    elif not (_is_pillow(source) or _is_array(source) or _is_readable(source) or _is_of_web(kind, source)):
        _content(kind, source, may_open=False)


def _unwrapped(kind: MediumKind, source: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, float]]:
    """The source from within nested dicts, with all their options for reading it."""
    options = dict(options)
    while isinstance(source, Mapping):
        holders = [name for name in SOURCE_NAMES[kind] if source.get(name) is not None]
        if not holders:
            raise RequestError(f"{A[kind]} given as a dict needs {kind!r} or 'url'; this one has {_names(source)}.")
        options |= {name: value for name, value in source.items() if name not in SOURCE_NAMES[kind]}
        source = source[holders[0]]
    return source, checked_options(options)


def _encoded_list(kind: MediumKind, frames: Sequence[Any], options: dict[str, float], may_open: bool) -> EncodedMedium:
    """A video as a list of its frames."""
    if kind == "image":
        raise RequestError("An image is one picture; give a list of them as several parts, or as a video.")
    if not frames:
        raise RequestError("This video has no frames.")
    if len(frames) > MOST_FRAMES:
        raise LimitError(f"A list of frames may have {MOST_FRAMES:,}, and this one has {len(frames):,}.")
    if all(is_frame(frame) for frame in frames):
        from .given_pixels import pixels_of_frames

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
    if _is_readable(source):
        return _bounded(kind, source.read(MOST_BYTES[kind] + 1))
    raise RequestError(
        f"{A[kind]} is given as bytes, a data: URL, a path, a Pillow image, or an array; this one is {_type(source)}."
    )


def _content_of_text(kind: MediumKind, text: str, may_open: bool) -> bytes:
    scheme = _scheme(kind, text)
    if scheme == "data":
        return _content_of_data(kind, text)
    if scheme == "file":
        return _opened(kind, text, may_open)
    if not may_open:
        raise _closed(kind, "a URL")
    from .download import downloaded

    return _bounded(kind, downloaded(kind, text, MOST_BYTES[kind]))


def _scheme(kind: MediumKind, text: str) -> str:
    """The scheme of an address; `file` also for a path."""
    scheme = text[:8].partition(":")[0].lower() if ":" in text[:8] else ""
    if scheme in ("data", "http", "https"):
        return scheme
    if "://" in text[:_LONGEST_SCHEME] and scheme != "file":
        raise RequestError(f"{A[kind]} is at an address of http:, https:, file: or data:, and not at {shown(text)}.")
    return "file"


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
    with _reading_in_words(kind, path):
        content = read_regular(_path(path), MOST_BYTES[kind])
    if content is None:
        raise _too_large(kind)
    return _bounded(kind, content)


def _path(path_or_url: str) -> str:
    if path_or_url[:5].lower() != "file:":
        return os.path.expanduser(path_or_url)
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(path_or_url)
    if parts.netloc not in ("", "localhost"):
        raise RequestError(f"A file: URL names a file of this machine: file:///…, not {shown(path_or_url)}.")
    return unquote(parts.path)


@contextmanager
def _reading_in_words(kind: MediumKind, path: str) -> Iterator[None]:
    try:
        yield
    except RequestError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError(f"The {kind} {shown(path)} can't be read: {reason}.") from None


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
    return RequestError(
        f"This {kind} is {what}, and nothing opens those of requests to a daemon, over HTTP or in a file of prompts. "
        "Send it as data: URL."
    )


# --- types -----------------------------------------------------------------------------------------------------------


def is_frame(source: Any) -> bool:
    return _is_pillow(source) or (_is_array(source) and len(source.shape) <= 3)


def _is_pillow(source: Any) -> bool:
    """Check without importing Pillow: a process with one of its images has imported it."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(source, module.Image)


def _is_readable(source: Any) -> bool:
    return callable(getattr(source, "read", None))


def _is_of_web(kind: MediumKind, source: Any) -> bool:
    return isinstance(source, str) and _scheme(kind, source) in ("http", "https")


def _is_array(source: Any) -> bool:
    return hasattr(source, "__array__") and hasattr(source, "shape") and not _is_pillow(source)


def _type(value: Any) -> str:
    return type(value).__name__


def _names(given: Mapping[str, Any]) -> str:
    return ", ".join(shown(name) for name in list(given)[:5]) or "nothing"
