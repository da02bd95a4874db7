"""Opens possible videos: a film by PyAV, an animation by Pillow, a list of frames, or plain pixels."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from PIL import Image

from ....protocol.errors import LimitError, RequestError
from ..families.frames import Video
from ..sources.encoded_media import MOST_FRAMES, EncodedMedium
from .films import MAGIC, open_film
from .images import ANIMATED, opened, read_image, rgb_of

# of all frames of an animation: each builds on the previous ones, whichever are wanted
_MOST_PIXELS = 8 << 30


def open_video(medium: EncodedMedium) -> Video:
    rate = medium.options.get("sample_fps")
    if medium.form == "pixels":
        if min(medium.shape) < 1 or math.prod(medium.shape) * 3 != len(medium.data):
            raise RequestError("These pixels are not those of frames in RGB.")
        return _Pixels(medium.data, medium.shape, rate)
    if medium.form == "files":
        return _Files(msgspec.msgpack.decode(medium.data, type=list[bytes]), rate)
    head = medium.data[:16]
    if any(head.startswith(magic, offset) for offset, magic in MAGIC) and head[8:12] not in (b"avif", b"avis"):
        return open_film(medium.data)
    return _Animation(opened_animation(medium.data), rate)


def opened_animation(content: bytes) -> Image.Image:
    try:
        return opened(content, ANIMATED)
    except LimitError:
        raise
    except RequestError:
        raise RequestError(
            "This video is in no format that is known here; send MP4, WebM, Matroska, AVI, MPEG, GIF or WebP."
        ) from None


class _Pixels(Video):
    is_sampled = True

    def __init__(self, pixels: bytes, shape: tuple[int, int, int], rate: float | None) -> None:
        self._pixels = memoryview(pixels)
        self.num_frames, self.height, self.width = shape
        self.fps = rate

    def frames(self, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image]]:
        size = self.height * self.width * 3
        for index in indices:
            frame = self._pixels[index * size : (index + 1) * size]
            yield index, Image.frombytes("RGB", (self.width, self.height), bytes(frame))


class _Files(Video):
    is_sampled = True

    def __init__(self, files: list[bytes], rate: float | None) -> None:
        self._files = files
        self.num_frames = len(files)
        first = read_image(files[0])
        self.width, self.height = first.size
        self.fps = rate

    def frames(self, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image]]:
        for index in indices:
            frame = read_image(self._files[index])
            if frame.size != (self.width, self.height):
                raise RequestError(
                    f"All frames of a video have one size; frame {index + 1} has {frame.width} x {frame.height}, the "
                    f"first {self.width} x {self.height}."
                )
            yield index, frame


class _Animation(Video):
    """GIF, WebP, APNG or AVIF; its rate is the mean over its frames' durations."""

    def __init__(self, image: Image.Image, rate: float | None) -> None:
        self._image: Any = image
        self.width, self.height = image.size
        self.num_frames = int(getattr(image, "n_frames", 1))
        if self.num_frames > MOST_FRAMES:
            raise LimitError(f"An animation may have {MOST_FRAMES:,} frames, and this one has {self.num_frames:,}.")
        if self.num_frames * self.width * self.height > _MOST_PIXELS:
            raise LimitError(
                f"{self.num_frames:,} frames of {self.width:,} x {self.height:,} are too many for an animation; send "
                "a film, or fewer or smaller frames."
            )
        self.fps = rate or self._rate()

    def _rate(self) -> float | None:
        milliseconds = 0.0
        for index in range(self.num_frames):
            self._seek(index)
            milliseconds += float(self._image.info.get("duration", 0) or 0)
        return self.num_frames * 1000 / milliseconds if milliseconds > 0 else None

    def frames(self, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image]]:
        for index in indices:
            self._seek(index)
            yield index, rgb_of(self._image.copy())

    def _seek(self, index: int) -> None:
        try:
            self._image.seek(index)
        except (EOFError, OSError, SyntaxError, ValueError):
            raise RequestError(f"Frame {index + 1} of this animation is damaged or cut off.") from None
