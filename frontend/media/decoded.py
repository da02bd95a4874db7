"""`DecodedMedium`: a picture or video resized like in its model's processor, and its digest."""

import hashlib
import struct

import msgspec

from ...protocol.media import MediumKind

Shape = tuple[int, int, int]  # frames, height, width


class Layout(msgspec.Struct, frozen=True, gc=False):
    """A description of a medium's pixels by the process that decoded it."""

    shape: Shape
    tiles: tuple[int, int] = (0, 0)  # rows and columns of a picture's tiles, without the whole picture
    times: tuple[float, ...] = ()  # of a video's frames, in seconds
    frame_rate: float = 0.0  # of a video's sampled frames
    seconds: float = 0.0  # the length of the whole video


class DecodedMedium(msgspec.Struct, frozen=True, gc=False):
    """One picture or video, ready to be inserted into a prompt."""

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
