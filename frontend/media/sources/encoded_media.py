"""`EncodedMedium`: one picture or video as its caller gave it, with the options for reading it, such as `max_pixels`;
and how a client sends several to the daemon.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from ....protocol.errors import RequestError
from ....protocol.fields.rules import shown
from ....protocol.fields.suggestion import suggestion
from ....protocol.media import MediumKind
from ....protocol.wire import Part

OPTIONS = ("min_pixels", "max_pixels", "fps", "num_frames", "min_frames", "max_frames", "sample_fps")
RATES = (0.001, 1000.0)  # plausible frames per second; positions in time are made from them
_OTHER_NAMES = {"nframes": "num_frames", "raw_fps": "sample_fps"}
_LOW_DETAIL_PIXELS = 512 * 512
MOST_FRAMES = 4096  # in a list
# More are compressed before they are sent: 12 million pixels have 34 MiB, and a message to the daemon 32.
_MOST_PLAIN_BYTES = 4 << 20


class EncodedMedium(Part):
    """One picture or video as its caller gave it; clients send it to the daemon."""

    kind: MediumKind
    form: Literal["file", "files", "pixels"]
    data: bytes  # a file; several files, each a frame, packed by msgspec; or uint8 [frames, height, width, 3]
    shape: tuple[int, int, int] = (0, 0, 0)  # of pixels
    options: dict[str, float] = {}


_media = msgspec.msgpack.Decoder(list[EncodedMedium])


def packed_media(media: Sequence[EncodedMedium]) -> bytes:
    """Pack media to send them to the daemon."""
    return msgspec.msgpack.encode([_compressed(medium) for medium in media]) if media else b""


def unpacked_media(packed: bytes) -> list[EncodedMedium]:
    """Unpack a client's media; raises `RequestError`."""
    try:
        media = _media.decode(packed)
    except msgspec.DecodeError as error:
        raise RequestError(f"The request's pictures can't be read: {error}") from None
    return [msgspec.structs.replace(medium, options=checked_options(medium.options)) for medium in media]


def _compressed(medium: EncodedMedium) -> EncodedMedium:
    """Compress without loss, if it has many pixels."""
    if medium.form != "pixels" or len(medium.data) <= _MOST_PLAIN_BYTES:
        return medium
    from .given_pixels import png_files

    files = png_files(medium.data, medium.shape)
    if medium.kind == "image":
        return EncodedMedium(medium.kind, "file", files[0], options=medium.options)
    return EncodedMedium(medium.kind, "files", msgspec.msgpack.encode(files), options=medium.options)


# --- options ---------------------------------------------------------------------------------------------------------


def option_name(name: Any) -> str | None:
    name = _OTHER_NAMES.get(name, name)
    return name if name in OPTIONS else None


def checked_options(given: Mapping[str, Any]) -> dict[str, float]:
    """Options for reading a medium, under the names in `OPTIONS`; unknown names are refused."""
    options: dict[str, float] = {}
    for given_name, value in given.items():
        if given_name in ("type", "detail", "format", "text", "cache_control", "uuid") or value is None:
            if given_name == "detail":
                _check_detail(value, options)
            continue
        name = option_name(given_name)
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
