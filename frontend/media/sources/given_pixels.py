"""Reads pixels from objects in the caller's process: Pillow's images, and arrays of numpy, torch or others."""

import io
from collections.abc import Sequence
from typing import Any

import numpy
from PIL import Image

from ....protocol.errors import LimitError, RequestError
from ....protocol.media import MediumKind
from ..rgb import as_rgb, check_size

Shape = tuple[int, int, int]  # frames, height, width
_MOST_BYTES = 1 << 30  # of one medium's frames
_CHANNELS = (1, 3, 4)


def pixels_of(kind: MediumKind, source: Any) -> tuple[bytes, Shape]:
    """One picture, or a video as one array [frames, height, width, channels]; returns uint8 RGB [frames, height,
    width, 3]."""
    if isinstance(source, Image.Image):
        return _joined([_of_pillow(source)])
    array = _as_array(source)
    if array.ndim == 4:
        if kind == "image" and len(array) != 1:
            raise RequestError(f"An image is one picture, and this array holds {len(array)}.")
        check_size(array.shape[2], array.shape[1])
        _check_bytes(len(array), array.shape[1] * array.shape[2])
        return _joined([_of_array(frame) for frame in array])
    return _joined([_of_array(array)])


def pixels_of_frames(frames: Sequence[Any]) -> tuple[bytes, Shape]:
    """A video as a list of pictures of one size."""
    found: list[numpy.ndarray] = []
    for frame in frames:
        found.append(_of_pillow(frame) if isinstance(frame, Image.Image) else _of_array(_as_array(frame)))
        if found[-1].shape != found[0].shape:
            (height, width, _), (first_height, first_width, _) = found[-1].shape, found[0].shape
            raise RequestError(
                f"All frames of a video have one size; one has {width} x {height}, the first {first_width} x "
                f"{first_height}."
            )
        _check_bytes(len(found), found[0].shape[0] * found[0].shape[1])
    return _joined(found)


def png_files(pixels: bytes, shape: Shape) -> list[bytes]:
    """Each frame as a lossless file, at the fastest setting."""
    frames, height, width = shape
    files = []
    for frame in numpy.frombuffer(pixels, numpy.uint8).reshape(frames, height, width, 3):
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "PNG", compress_level=1)
        files.append(file.getvalue())
    return files


def _joined(frames: list[numpy.ndarray]) -> tuple[bytes, Shape]:
    height, width, _ = frames[0].shape
    return b"".join(frame.tobytes() for frame in frames), (len(frames), height, width)


def _check_bytes(num_frames: int, num_pixels: int) -> None:
    if num_frames < 1:
        raise RequestError("This video has no frames.")
    if num_frames * num_pixels * 3 > _MOST_BYTES:
        raise LimitError(f"The frames of a video may have {_MOST_BYTES >> 30} GiB; give fewer or smaller ones.")


def _of_pillow(image: Image.Image) -> numpy.ndarray:
    try:
        return numpy.asarray(as_rgb(image))
    except RequestError:
        raise
    except Exception as error:  # a file that Pillow has opened but not read yet
        raise RequestError(f"This Pillow image can't be read: {type(error).__name__}: {error}.") from error


def _as_array(source: Any) -> numpy.ndarray:
    try:
        source = source.detach().cpu() if callable(getattr(source, "detach", None)) else source  # torch's
        return numpy.asarray(source)
    except Exception as error:
        raise RequestError(f"This {type(source).__name__} gives no array: {error}.") from error


def _of_array(array: numpy.ndarray) -> numpy.ndarray:
    """One picture [height, width], or with channels last or first, in RGB."""
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3:
        raise RequestError(f"An array is a picture as [height, width, 3]; this one is {list(array.shape)}.")
    if array.shape[2] not in _CHANNELS and array.shape[0] in _CHANNELS:
        array = numpy.moveaxis(array, 0, 2)
    if array.shape[2] not in _CHANNELS:
        raise RequestError(f"A picture has 1, 3 or 4 channels; this array is {list(array.shape)}.")
    check_size(array.shape[1], array.shape[0])
    levels = numpy.ascontiguousarray(_levels(array))
    if levels.shape[2] == 4:
        return numpy.asarray(as_rgb(Image.fromarray(levels)))
    return numpy.repeat(levels, 3, axis=2) if levels.shape[2] == 1 else levels


def _levels(array: numpy.ndarray) -> numpy.ndarray:
    """Convert to whole numbers from 0 to 255; fractions are assumed to be from 0 to 1."""
    if array.dtype == numpy.uint8:
        return array
    if array.dtype == bool or not (numpy.issubdtype(array.dtype, numpy.integer) or array.dtype.kind == "f"):
        raise RequestError(f"A picture's array holds uint8, or fractions from 0 to 1; this one holds {array.dtype}.")
    least, most = array.min(), array.max()
    if array.dtype.kind == "f":
        if not (least >= 0 and most <= 1):  # also catches NaN
            raise RequestError(
                f"A picture's array of fractions holds 0 to 1, and this one {least:g} to {most:g}. Give uint8, "
                "before any normalisation."
            )
        levels: numpy.ndarray = numpy.rint(array * 255).astype(numpy.uint8)
        return levels
    if least < 0 or most > 255:
        raise RequestError(f"A picture's array holds 0 to 255, and this one {least} to {most}. Give uint8.")
    return array.astype(numpy.uint8)
