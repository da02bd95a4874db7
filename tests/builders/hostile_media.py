"""Pictures and videos that break engines, each as parts of a message, with words of the sentence that refuses it.

None is larger than a body may be; what they say of themselves is. `DURABLE` take seconds of a processor before they are
refused or answered.
"""

import base64
import importlib.util
import io
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy
from builders.films import film
from PIL import Image

HAS_FILMS = importlib.util.find_spec("av") is not None
Part = dict[str, Any]


@dataclass(frozen=True)
class HostileMedium:
    name: str
    parts: list[Part] = field(repr=False)
    says: str  # an expression
    is_opened_by_callers: bool = False  # so that it means something else to a script that has attached


def data_url(content: bytes, kind: str = "image") -> str:
    return f"data:{kind}/x;base64,{base64.b64encode(content).decode()}"


def image(content: bytes, **options: Any) -> Part:
    return {"type": "image_url", "image_url": {"url": data_url(content), **options}}


def video(content: bytes, **options: Any) -> Part:
    return {"type": "video_url", "video_url": {"url": data_url(content, "video"), **options}}


def link(url: Any, **options: Any) -> Part:
    return {"type": "image_url", "image_url": {"url": url, **options}}


# --- files -----------------------------------------------------------------------------------------------------------


def file_of(kind: str, size: tuple[int, int] = (64, 48)) -> bytes:
    content = io.BytesIO()
    levels = numpy.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=numpy.uint8)
    Image.fromarray(levels).save(content, kind)
    return content.getvalue()


def png(width: int, height: int, *chunks: tuple[bytes, bytes], color: int = 0) -> bytes:
    """Write a picture of one level; it has all its pixels if they aren't more than 100 million."""
    row = width * (3 if color else 1) + 1
    pixels = zlib.compress(bytes(row * height)) if width * height < 10**8 else zlib.compress(bytes(1 << 16))
    head = struct.pack(">2I5B", width, height, 8, color, 0, 0, 0)
    every = [(b"IHDR", head), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    packed = [struct.pack(">I", len(data)) + name + data for name, data in every]
    return b"\x89PNG\r\n\x1a\n" + b"".join(each + struct.pack(">I", zlib.crc32(each[4:])) for each in packed)


def gif(width: int, height: int, frames: int) -> bytes:
    head = b"GIF89a" + struct.pack("<2H", width, height) + b"\xf0\0\0" + b"\0\0\0\xff\xff\xff"
    frame = b"\x21\xf9\4\4\x0a\0\0\0" + b"\x2c" + struct.pack("<4HB", 0, 0, 1, 1, 0) + b"\2\2\x44\1\0"
    return head + frame * frames + b";"


def tiff(width: int, height: int, following: int = 0) -> bytes:
    """One directory, and where the next one begins."""
    tags = [(256, width), (257, height), (258, 8), (259, 1), (262, 1), (273, 8), (278, height), (279, 1)]
    entries = b"".join(struct.pack("<2H2I", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", following)


def icon_of(content: bytes) -> bytes:
    return struct.pack("<3H4B2H2I", 0, 1, 1, 0, 0, 0, 0, 1, 32, len(content), 22) + content


def altered(**replaced: bytes) -> bytes:
    """A film with something else in the head of a box."""
    found = film([Image.new("RGB", (64, 48))] * 3)
    for box, value in replaced.items():
        start = found.index(box.encode()) + 8  # behind the name, version and flags
        found = found[:start] + value + found[start + len(value) :]
    return found


# --- the cases -------------------------------------------------------------------------------------------------------

_BOMB = zlib.compress(bytes(8 << 20))
_UNKNOWN, _DAMAGED = "no format that is known", "damaged|cut off"
_ONE = png(1, 1)
_MARKS = {"Matroska": b"\x1aE\xdf\xa3", "AVI": b"RIFF\0\0\0\0AVI LIST"}
_BITMAP = b"BM" + bytes(12) + struct.pack("<I2i2H24x", 40, 2**31 - 1, 2**31 - 1, 1, 24)
_PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"


def _of_bytes() -> list[HostileMedium]:
    cases = {
        "a PNG that says 40,000 x 40,000": (png(40_000, 40_000), "million pixels"),
        "a PNG without width": (png(0, 8), _DAMAGED + "|no pixels"),
        "a PNG whose text unpacks": (png(8, 8, (b"zTXt", b"a\0\0" + _BOMB)), _DAMAGED),
        "a PNG whose colour profile unpacks": (png(8, 8, (b"iCCP", b"a\0\0" + _BOMB)), _DAMAGED),
        "a PNG cut off in its pixels": (file_of("PNG")[:3000], "cut off"),
        "a GIF with one pixel on a canvas of 65,535²": (gif(65_535, 65_535, 1), "million pixels"),
        "a JPEG that ends after its first marker": (b"\xff\xd8\xff\xe0", _DAMAGED),
        "a JPEG cut off": (file_of("JPEG")[:700], "cut off"),
        "an AVIF cut off": (file_of("AVIF")[:200], "HEIC, or damaged|" + _DAMAGED),
        "a BMP that says 2³¹ x 2³¹": (_BITMAP, "million pixels"),
        "a TIFF that says 2³¹ x 2³¹": (tiff(2**31 - 1, 2**31 - 1), "million pixels|" + _DAMAGED),
        "an icon with a PNG of 40,000 x 40,000": (icon_of(png(40_000, 40_000)), "million pixels|" + _DAMAGED),
        "a picture 200,000 times as high as wide": (png(1, 200_000), "too narrow"),
        "an SVG": (b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>', "SVG"),
        "an SVG of entities": (b'\xef\xbb\xbf<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "b">]><svg>&b;</svg>', "SVG"),
        "a PostScript program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/tmp/x) (w) file\n", _UNKNOWN),
        "a PDF": (b"%PDF-1.7\n", "PDF"),
        "a PDF with a PNG behind it": (b"%PDF-1.7\n" + file_of("PNG"), "PDF"),
        "a ZIP": (b"PK\x03\x04" + bytes(60), "ZIP"),
        "a DDS": (file_of("DDS"), _UNKNOWN),
        "noise": (bytes(range(256)) * 64, _UNKNOWN),
        "a film as a picture": (b"\x00\x00\x00 ftypisom" + bytes(100), "a video"),
    }
    return [HostileMedium(name, [image(content)], says) for name, (content, says) in cases.items()]


def _of_videos() -> list[HostileMedium]:
    cases = {
        "a playlist": (_PLAYLIST, _UNKNOWN),
        "a GIF of 5,000 frames": (gif(8, 8, 5000), "4,096"),
        "a GIF of 4,000 frames of 9,000²": (gif(9000, 9000, 4000), "too many for an animation"),
        "a TIFF whose directories go round": (tiff(8, 8, following=8), _UNKNOWN),
    }
    films = {
        "a playlist behind the mark of a film": (b"G@\n" + _PLAYLIST, _DAMAGED),
        "boxes in 100,000 boxes": (b"".join(struct.pack(">I4s", 8 * n, b"moov") for n in range(100_000, 0, -1)), ""),
    }
    films |= {f"a film of {name}": (mark + bytes(range(256)) * 64, "") for name, mark in _MARKS.items()}
    if HAS_FILMS:  # else they are refused for want of PyAV
        films |= {
            "a film of 2³¹ frames": (altered(stts=struct.pack(">3I", 1, 2**31 - 1, 1)), "262,144"),
            "a film with a table of 2³¹ entries": (altered(stts=struct.pack(">3I", 2**31 - 1, 3, 1)), "memory|damaged"),
            "a film of 2³¹ samples": (altered(stsz=struct.pack(">2I", 1, 2**31 - 1)), ""),
        }
    return [HostileMedium(name, [video(content)], says) for name, (content, says) in (cases | films).items()]


def _of_urls() -> list[HostileMedium]:
    closed = {
        "an address": "http://localhost/x.png",
        "the address of a cloud's metadata": "http://169.254.169.254/latest/meta-data/",
        "a file": "file:///etc/passwd",
        "an address in capitals": "HTTPS://localhost/",
    }
    cases = [HostileMedium(name, [link(url)], "data: URL", True) for name, url in closed.items()]
    broken = {
        "a data: URL whose head has no end": ("data:" + "a" * 100_000, "no comma"),
        "a data: URL whose base64 isn't": ("data:image/png;base64,%%%%", "not valid"),
        "a data: URL in percents": ("data:image/png,%89PNG", "must be base64"),
        "a data: URL of a page": ("data:text/html;base64,PGh0bWw+", "is no image"),
    }
    return cases + [HostileMedium(name, [link(url)], says) for name, (url, says) in broken.items()]


def _of_parts() -> list[HostileMedium]:
    wrong = {"min_pixels": -1, "max_pixels": 0, "fps": 1e300, "pixels": 9}
    options = [
        HostileMedium(f"{name}={value}", [link(data_url(_ONE), **{name: value})], name) for name, value in wrong.items()
    ]
    return [
        *options,
        HostileMedium("10,000 parts", [image(_ONE)] * 10_000, "limit_mm_per_prompt|limit_prompt_chars"),
        HostileMedium("nine videos", [video(gif(8, 8, 2))] * 9, "limit_mm_per_prompt"),
        HostileMedium("a hundred pixels, each as large as may be", [image(_ONE, min_pixels=2**30)] * 100, "rows"),
        HostileMedium("an uploaded file", [{"type": "input_image", "file_id": "file-1"}], "no uploaded files"),
        HostileMedium("a part without a picture", [{"type": "image_url"}], "holds no image"),
        HostileMedium("a picture that is a number", [link(7)], "given as"),
        HostileMedium("a picture that is a list", [link([data_url(_ONE)])], "one picture"),
        HostileMedium("one good picture and a bad one", [image(_ONE), image(b"no picture")], _UNKNOWN),
    ]


HOSTILE = [*_of_bytes(), *_of_videos(), *_of_urls(), *_of_parts()]


def durable() -> list[HostileMedium]:
    """Answered or refused after seconds: `says` is "" where they are answered."""
    black = png(9800, 9800)
    small = {"max_frames": 4, "max_pixels": 4096}
    return [
        HostileMedium("twenty pictures of 96 million pixels as small ones", [image(black, max_pixels=1024)] * 20, ""),
        HostileMedium("a GIF of 2,000 frames of 2,000²", [video(gif(2000, 2000, 2000), **small)], ""),
        HostileMedium("a GIF of 260,000 frames", [video(gif(64, 64, 260_000))], "4,096"),
        HostileMedium("a PNG of 300,000 texts", [image(png(8, 8, *[(b"tEXt", b"a\0b")] * 300_000))], ""),
        HostileMedium("a hundred pixels", [image(_ONE, min_pixels=2**30)] * 100, "rows"),
        HostileMedium("a GIF of 50 frames of 9,000²", [video(gif(9000, 9000, 50), **small)], ""),
    ]
