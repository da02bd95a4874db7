"""`DecodedMedium`: a picture or video resized as its model's processor would have it; and its digest."""

import hashlib
import struct

import msgspec

from ...protocol.media import MediumKind

Shape = tuple[int, int, int]  # frames, height, width


class Layout(msgspec.Struct, frozen=True, gc=False):
    """What the process that decoded a medium says of its pixels."""

    shape: Shape
    tiles: tuple[int, int] = (0, 0)  # rows and columns of tiles that a picture was cut into, without the whole one
    times: tuple[float, ...] = ()  # of a video's frames, in seconds
    frame_rate: float = 0.0  # of a video's frames as they were sampled
    seconds: float = 0.0  # that the whole video lasts


class DecodedMedium(msgspec.Struct, frozen=True, gc=False):
    """One picture or video, ready to be given its place in a prompt."""

    kind: MediumKind
    pixels: bytes  # uint8 [frames, height, width, 3]
    layout: Layout
    digest: bytes

    @classmethod
    def of(cls, kind: MediumKind, pixels: bytes, layout: Layout) -> "DecodedMedium":
        return cls(kind, pixels, layout, digest_of(kind, pixels, layout))

    @property
    def shape(self) -> Shape:
        return self.layout.shape


def digest_of(kind: MediumKind, pixels: bytes, layout: Layout) -> bytes:
    """SHA-256 over everything that a medium's rows and their positions depend on.

    Each piece follows its own length, so that no two different media give the same bytes.
    """
    times = struct.pack(f"<{len(layout.times) + 1}d", layout.frame_rate, *layout.times)
    digest = hashlib.sha256()
    for piece in (b"medium 1", kind.encode(), struct.pack("<3q", *layout.shape), times, pixels):
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest.digest()
