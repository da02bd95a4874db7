"""Decodes films with PyAV: listed containers and codecs only, with bounded sizes, one frame after another."""

import io
from collections.abc import Iterator, Sequence
from typing import Any

from PIL import Image

from ....protocol.errors import LimitError, RequestError
from ..families.frames import Video
from ..rgb import check_size

# Where a container identifies itself.
MAGIC = (
    (4, b"ftyp"),
    (4, b"moov"),
    (4, b"mdat"),
    (0, b"\x1aE\xdf\xa3"),
    (8, b"AVI "),
    (0, b"\x00\x00\x01\xba"),
    (0, b"G@"),
    (0, b"FLV"),
    (0, b"OggS"),
    (0, b"0&\xb2u"),
)
# Self-contained formats. Playlists are excluded: they would make FFmpeg open other files and addresses.
_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,flv,ogg,asf"
_OPTIONS = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "none"}
_CODECS = frozenset(
    ("h264", "hevc", "vp8", "vp9", "av1", "mpeg1video", "mpeg2video", "mpeg4", "mjpeg", "theora", "prores", "h263")
    + ("flv", "wmv1", "wmv2", "wmv3", "vc1", "msmpeg4v3", "png", "ffv1", "rawvideo", "gif", "webp")
)
_MOST_FRAMES = 1 << 18  # an hour at 60 a second has 216,000


def open_film(content: bytes) -> "Video":
    try:
        import av
    except ImportError:
        raise RequestError(
            "Videos are decoded by PyAV, which is not installed here: pip install 'penstock[video]'. Frames can be "
            "sent as a list of pictures, and GIF and WebP animations as they are."
        ) from None
    av.logging.set_level(av.logging.PANIC)
    try:
        container = av.open(io.BytesIO(content), options=_OPTIONS)
        return _Film(container, content)
    except RequestError:
        raise
    except Exception as error:
        raise _broken(error) from None


class _Film(Video):
    def __init__(self, container: Any, content: bytes) -> None:
        if not container.streams.video:
            raise RequestError("This file has no video in it.")
        self._container = container
        self._stream = stream = container.streams.video[0]
        codec = stream.codec_context
        _check_codec(codec)
        self._name = codec.name
        self.width, self.height = codec.width, codec.height
        check_size(self.width, self.height)
        self.fps = float(stream.average_rate) if stream.average_rate else None
        self.num_frames = int(stream.frames) or self._counted()
        if self.num_frames < 1:
            raise RequestError("This video has no frames.")
        if self.num_frames > _MOST_FRAMES:
            raise LimitError(f"A video may have {_MOST_FRAMES:,} frames, and this one has {self.num_frames:,}.")

    def _counted(self) -> int:
        """Count packets, each of which is one frame, for containers that don't state the number of frames."""
        count = 0
        for packet in self._container.demux(self._stream):
            count += packet.size > 0
            if count > _MOST_FRAMES:
                break
        self._container.seek(0)
        return count

    def frames(self, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image]]:
        wanted = iter(indices)
        index = next(wanted)
        try:
            for number, frame in enumerate(self._container.decode(self._stream)):
                if number < index:
                    continue
                image = self._converted(frame)
                while number == index:
                    yield index, image
                    if (following := next(wanted, None)) is None:
                        return
                    index = following
        except RequestError:
            raise
        except Exception as error:
            raise _broken(error) from None

    def _converted(self, frame: Any) -> Image.Image:
        if frame.width * frame.height > self.width * self.height * 4:
            raise LimitError("Frames of this video are larger than it says.")
        image = Image.fromarray(frame.to_ndarray(format="rgb24"))
        size = (self.width, self.height)
        return image if image.size == size else image.resize(size)


def _check_codec(codec: Any) -> None:
    name = codec.codec.canonical_name if hasattr(codec.codec, "canonical_name") else codec.name
    if name.split("_")[0] not in _CODECS and codec.name not in _CODECS:
        raise RequestError(f"The codec {codec.name} of this video is not read here; use H.264, VP9 or AV1.")


def _broken(error: Exception) -> RequestError:
    if isinstance(error, MemoryError):
        return LimitError("This video takes more memory than one may, or its file is damaged.")
    return RequestError(f"This video's file is damaged, or not what its first bytes say ({type(error).__name__}).")
