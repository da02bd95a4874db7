"""Turns Pillow's images of any mode into RGB, upright, as transformers does: transparency shows white behind it."""

from typing import TYPE_CHECKING

from ...protocol.errors import LimitError, RequestError

if TYPE_CHECKING:
    from PIL import Image

# of one picture or frame, before resizing. Phone cameras make 50 million; more is mostly a bomb
MOST_PIXELS = 96 << 20
_BAND = 1024  # rows composited on white at once, since that takes the memory of several copies


def check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise RequestError(f"A picture of {width} x {height} has no pixels.")
    if width * height > MOST_PIXELS:
        raise LimitError(
            f"A picture may have {MOST_PIXELS >> 20} million pixels, and this one has {width:,} x {height:,}. "
            "Make it smaller."
        )


def as_rgb(image: "Image.Image") -> "Image.Image":
    """An upright image in RGB. Its size is checked before anything is decoded."""
    from PIL import ImageOps

    check_size(*image.size)
    upright = ImageOps.exif_transpose(image) or image
    if "A" not in upright.getbands() and upright.info.get("transparency") is None:
        return upright if upright.mode == "RGB" else upright.convert("RGB")
    return _on_white(upright)


def _on_white(image: "Image.Image") -> "Image.Image":
    from PIL import Image

    width, height = image.size
    result = Image.new("RGB", image.size)
    for top in range(0, height, _BAND):
        box = (0, top, width, min(top + _BAND, height))
        band = image.crop(box)
        band.info = image.info  # it names the transparent color
        band = band.convert("RGBA")
        white = Image.new("RGBA", band.size, (255, 255, 255, 255))
        result.paste(Image.alpha_composite(white, band).convert("RGB"), box)
    return result
