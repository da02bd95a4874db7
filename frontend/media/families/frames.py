"""Pixels in a helper process: `Video`, from which frames are taken, and `Frames`, which are resized."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from PIL import Image

from ....protocol.errors import LimitError, RequestError
from ..decoded import Layout
from ..sources.encoded_media import RATES
from .sizes import MOST_RESULT_BYTES

BILINEAR, BICUBIC, LANCZOS = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS
UNKNOWN_FPS = 24.0  # for frames without a rate, as in transformers


class Frames(NamedTuple):
    pixels: numpy.ndarray  # uint8 [frames, height, width, 3]
    layout: Layout


class Video(ABC):
    """A video whose frames are decoded in order when they are taken."""

    num_frames: int
    fps: float | None
    width: int
    height: int
    is_sampled = False  # True for a list of frames, which its caller has chosen already

    @abstractmethod
    def frames(self, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image]]:
        """These frames in RGB, each with its index; ascending. Missing frames are left out."""

    @property
    def rate(self) -> float:
        """The frame rate, within bounds: files may state anything."""
        return self.fps if self.fps and RATES[0] <= self.fps <= RATES[1] else UNKNOWN_FPS


def picture(image: Image.Image, height: int, width: int, resample: Image.Resampling) -> Frames:
    """A picture as one frame of this size."""
    return Frames(numpy.asarray(resized(image, height, width, resample))[None], Layout((1, height, width)))


def tiles(images: Sequence[Image.Image], rows: int, columns: int) -> Frames:
    """A picture as several frames: its tiles, all of one size."""
    pixels = numpy.stack([numpy.asarray(each) for each in images])
    return Frames(pixels, Layout((len(images), *pixels.shape[1:3]), (rows, columns)))


def resized(image: Image.Image, height: int, width: int, resample: Image.Resampling) -> Image.Image:
    if height * width * 3 > MOST_RESULT_BYTES:
        raise LimitError(f"The processor makes a picture of {width:,} x {height:,}, which is too large.")
    return image.resize((width, height), resample)


def taken(
    video: Video,
    indices: Sequence[int],
    height: int,
    width: int,
    resample: Image.Resampling,
    *,
    multiple: int = 1,
    draw: Callable[[Image.Image, float], Image.Image] = lambda frame, seconds: frame,
) -> Frames:
    """Sampled frames of a video in this size; the last is repeated up to a multiple of `frames`."""
    if len(indices) * height * width * 3 > MOST_RESULT_BYTES:
        raise LimitError(f"{len(indices):,} frames of {width:,} x {height:,} are too many. Send fewer, or a lower fps.")
    found: list[numpy.ndarray] = []
    seen: list[int] = []
    for index, frame in video.frames(indices):
        drawn = draw(frame, index / video.rate)
        found.append(numpy.asarray(resized(drawn, height, width, resample)))
        seen.append(index)
    if not found:
        raise RequestError("No frame of this video can be decoded.")
    frame_rate = len(indices) / video.num_frames * video.rate
    padding = -len(found) % multiple
    pixels = numpy.stack([*found, *found[-1:] * padding])
    times = tuple(index / video.rate for index in _padded(seen, padding))
    shape, seconds = (len(pixels), height, width), video.num_frames / video.rate
    return Frames(pixels, Layout(shape, times=times, frame_rate=frame_rate, seconds=seconds))


def _padded(indices: list[int], padding: int) -> Iterable[int]:
    return [*indices, *indices[-1:] * padding]


def evenly(total: int, count: int) -> list[int]:
    """Evenly spaced indices from the first to the last."""
    return [int(index) for index in numpy.linspace(0, total - 1, count).round()]


def from_the_start(total: int, count: float) -> list[int]:
    """Indices that each begin an equal share; in single precision, as transformers computes them."""
    step = total / count
    indices = [int(numpy.float32(number * step)) for number in range(math.ceil(total / step))]
    return [index for index in indices if index < total]
