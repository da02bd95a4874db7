"""`EncodedMedium`: one picture or video as its caller gave it; and how a client sends several to the daemon."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...protocol.errors import RequestError
from ...protocol.media import MediumKind
from ...protocol.wire import Part
from .media_options import checked_options

MOST_FRAMES = 4096  # in a list
# More are compressed before they are sent: 12 million pixels have 34 MiB, and a message to the daemon 32.
_MOST_PLAIN_BYTES = 4 << 20


class EncodedMedium(Part):
    """One picture or video as its caller gave it; clients send it to the daemon."""

    kind: MediumKind
    form: Literal["file", "files", "pixels"]
    data: bytes  # of a file; of several, each a frame, packed by msgspec; or uint8 [frames, height, width, 3]
    shape: tuple[int, int, int] = (0, 0, 0)  # of pixels
    options: dict[str, float] = {}


_media = msgspec.msgpack.Decoder(list[EncodedMedium])


def packed_media(media: Sequence[EncodedMedium]) -> bytes:
    """As a client sends them to the daemon."""
    return msgspec.msgpack.encode([_compressed(medium) for medium in media]) if media else b""


def unpacked_media(packed: bytes) -> list[EncodedMedium]:
    """What a client has sent; raises `RequestError`."""
    try:
        media = _media.decode(packed)
    except msgspec.DecodeError as error:
        raise RequestError(f"The request's pictures can't be read: {error}") from None
    return [msgspec.structs.replace(medium, options=checked_options(medium.options)) for medium in media]


def _compressed(medium: EncodedMedium) -> EncodedMedium:
    """Without loss, where it has many pixels."""
    if medium.form != "pixels" or len(medium.data) <= _MOST_PLAIN_BYTES:
        return medium
    from ..media.given_pixels import png_files

    files = png_files(medium.data, medium.shape)
    if medium.kind == "image":
        return EncodedMedium(medium.kind, "file", files[0], options=medium.options)
    return EncodedMedium(medium.kind, "files", msgspec.msgpack.encode(files), options=medium.options)
