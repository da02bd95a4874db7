"""Opens a picture's file: checks its format and size, and recognizes other kinds of files."""

import importlib
import io
import re
import warnings

from PIL import Image, UnidentifiedImageError

from ....protocol.errors import LimitError, RequestError
from ..rgb import MOST_PIXELS, as_rgb, check_size

# Pillow's readers for common formats, none of which starts a program or opens other files.
_NAMES = ("Jpeg", "Mpo", "Png", "Gif", "WebP", "Bmp", "Tiff", "Avif", "Jpeg2K", "Ppm", "Ico")
_READERS = {importlib.import_module(f"PIL.{name}ImagePlugin").__name__ for name in _NAMES}
# Other code in this process may have loaded all of Pillow's readers.
FORMATS = tuple(name for name, (reader, _) in Image.OPEN.items() if reader.__module__ in _READERS)
ANIMATED = ("GIF", "WEBP", "PNG", "AVIF")
# A second guard behind `check_size`: Pillow itself raises beyond twice this.
Image.MAX_IMAGE_PIXELS = MOST_PIXELS // 2

_NO_PICTURES = (
    (b"%PDF", "a PDF document; send its pages as pictures"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1aE\xdf\xa3", "a video; send it as video_url"),
    (b"FLV", "a video; send it as video_url"),
    (b"OggS", "a video or sound; send it as video_url"),
    (b"ID3", "sound"),
)
# The first bytes of all readers' formats; TIFF and PPM have several kinds.
_BEGINNINGS = re.compile(
    rb"\x89PNG|\xff\xd8|GIF8|RIFF|BM|(?:II|MM)[\x00*+]{2}|P[0-6fFy]|\x00\x00\x01\x00"
    rb"|\x00\x00\x00\x0cjP|\xff\x4f\xff\x51|.{4}ftyp(?:avi[fs]|m[is]f1)|[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\x00{3}",
    re.DOTALL,
)
_FTYP_IMAGES = (b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1", b"hevc", b"jp2 ")


def opened(content: bytes, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """A picture's file with its header read and its size checked; nothing is decoded yet."""
    _refuse_svg(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(content), formats=formats)
    except UnidentifiedImageError:
        raise RequestError(f"This picture is {_what_else(content)}.") from None
    except Image.DecompressionBombError:
        raise LimitError(f"A picture may have {MOST_PIXELS >> 20} million pixels, and this one has more.") from None
    except Exception as error:
        raise _broken(error) from None
    check_size(*image.size)
    return image


def rgb_of(image: Image.Image) -> Image.Image:
    """The first frame, decoded, upright and in RGB."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return as_rgb(image)
    except RequestError:
        raise
    except Image.DecompressionBombError:
        raise LimitError(f"A picture may have {MOST_PIXELS >> 20} million pixels, and this one has more.") from None
    except MemoryError:
        raise LimitError("This picture takes more memory than one may. Make it smaller.") from None
    except Exception as error:
        raise _broken(error) from None


def read_image(content: bytes) -> Image.Image:
    return rgb_of(opened(content))


def _broken(error: Exception) -> RequestError:
    kind = "cut off" if "truncated" in str(error).lower() else "damaged"
    return RequestError(f"This picture's file is {kind}, or not what its first bytes say ({type(error).__name__}).")


def _refuse_svg(content: bytes) -> None:
    head = content[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<svg", b"<?xml", b"<!doctype svg")):
        raise RequestError("This picture is SVG, which is a drawing in text. Send it as PNG or JPEG.")


def refuse_others(content: bytes) -> None:
    """Refuse a file that can be no picture, by its first bytes. Nothing is decoded, so any process may call this."""
    _refuse_svg(content)
    if not _BEGINNINGS.match(content):
        raise RequestError(f"This picture is {_what_else(content)}.")


def _what_else(content: bytes) -> str:
    for start, name in _NO_PICTURES:
        if content.startswith(start):
            return name
    if content[4:8] == b"ftyp":
        is_picture = content[8:12] in _FTYP_IMAGES
        return "HEIC, or damaged; send it as JPEG or PNG" if is_picture else "a video; send it as video_url"
    if _BEGINNINGS.match(content):
        return "damaged or cut off"
    return "in no format that is known here; send JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF"
