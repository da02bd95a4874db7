"""The ground that is drawn on, and what happens to a picture before somebody sees it: noise, blur, compression.

Everything is drawn twice as large and made smaller, so that edges are smooth. Only Pillow and numpy are needed; the
only font is the one that Pillow carries.
"""

from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from ..text.example import Draw

Colour = tuple[int, int, int]

SCALE = 2  # drawn so many times as large
COLOURS: dict[str, Colour] = {
    "red": (220, 30, 35), "green": (40, 155, 60), "blue": (35, 75, 215), "yellow": (245, 220, 40),
    "orange": (245, 135, 20), "purple": (130, 45, 165), "pink": (245, 130, 185), "brown": (120, 70, 35),
    "black": (18, 18, 18), "white": (250, 250, 250), "gray": (135, 135, 135),
}  # fmt: skip
_GRAYS = ("black", "white", "gray")
_CONTRAST = 130  # sum of the channels' differences that tells a colour from the ground
_LEGIBLE = 55  # of 255


@dataclass(frozen=True)
class Mark:
    """Something drawn: what it is, its colour, and its box in shares of the picture's width and height."""

    label: str
    colour: str
    left: float
    top: float
    right: float
    bottom: float


class Canvas:
    """A ground of some size and colour; `draw` draws on it in canvas coordinates times SCALE."""

    def __init__(self, draw: Draw, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.ground = _ground(draw)
        size = (width * SCALE, height * SCALE)
        self.image = Image.new("RGB", size, self.ground)
        if draw.chance(0.15):
            self.image = _gradient(draw, self.ground, size)
        self.draw = ImageDraw.Draw(self.image)
        self.marks: list[Mark] = []

    def mark(self, label: str, colour: str, left: float, top: float, right: float, bottom: float) -> None:
        wide, high = self.image.size
        self.marks.append(Mark(label, colour, left / wide, top / high, right / wide, bottom / high))

    def visible_colours(self) -> list[str]:
        return [name for name, colour in COLOURS.items() if distance(colour, self.ground) > _CONTRAST]

    def legible_colours(self) -> list[str]:
        """The visible colours whose brightness differs, too, as thin lines need."""
        ground = brightness(self.ground)
        return [name for name in self.visible_colours() if abs(brightness(COLOURS[name]) - ground) > _LEGIBLE]

    def finished(self, draw: Draw) -> Image.Image:
        """The picture in its final size, possibly blurred, noisy or compressed."""
        image = self.image.reduce(SCALE)
        if draw.chance(0.15):
            image = image.filter(ImageFilter.GaussianBlur(draw.random.uniform(0.3, 0.9)))
        if draw.chance(0.35):
            image = _noisy(draw, image)
        return _compressed(image, draw.number(45, 95)) if draw.chance(0.3) else image


def random_size(draw: Draw, low: int = 96, high: int = 320, widest: float = 1.6) -> tuple[int, int]:
    """Width and height; one is at most `widest` times the other."""
    longer = draw.number(low, high)
    shorter = max(low // 2, int(longer / draw.random.uniform(1.0, widest)))
    return (longer, shorter) if draw.chance(0.6) else (shorter, longer)


def distance(one: Colour, other: Colour) -> int:
    return sum(abs(a - b) for a, b in zip(one, other))


def brightness(colour: Colour) -> float:
    red, green, blue = colour
    return 0.3 * red + 0.59 * green + 0.11 * blue


def shade(draw: Draw, name: str) -> Colour:
    """One of the shades that go by this name."""
    if name in _GRAYS:
        by = draw.number(-14, 14)
        return _clipped(channel + by for channel in COLOURS[name])
    return _clipped(channel + draw.number(-16, 16) for channel in COLOURS[name])


def ink(draw: Draw, canvas: Canvas) -> Colour:
    """Black or white, whichever is seen there."""
    is_light = sum(canvas.ground) > 380
    return shade(draw, "black" if is_light else "white")


@lru_cache(maxsize=400)
def font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)


def _ground(draw: Draw) -> Colour:
    form = draw.random.random()
    if form < 0.5:
        return (255, 255, 255) if form < 0.25 else _gray(draw, 235, 255)
    if form < 0.7:
        return (draw.number(200, 255), draw.number(200, 255), draw.number(200, 255))
    if form < 0.85:
        return _gray(draw, 0, 45) if form < 0.8 else (draw.number(0, 70), draw.number(0, 70), draw.number(0, 70))
    return _gray(draw, 60, 220) if form < 0.9 else shade(draw, draw.one(list(COLOURS)))


def _gray(draw: Draw, low: int, high: int) -> Colour:
    value = draw.number(low, high)
    return (value, value, value)


def _gradient(draw: Draw, ground: Colour, size: tuple[int, int]) -> Image.Image:
    """The ground, a little darker or lighter towards one side."""
    change = draw.one((-35, -20, 20, 35))
    ramp = Image.linear_gradient("L").rotate(draw.one((0, 90, 180, 270))).resize(size)
    other = Image.new("RGB", size, _clipped(channel + change for channel in ground))
    return Image.composite(other, Image.new("RGB", size, ground), ramp)


def _noisy(draw: Draw, image: Image.Image) -> Image.Image:
    noise = np.random.default_rng(draw.number(0, 2**31)).integers(-128, 128, (image.height, image.width, 1), np.int16)
    strength = draw.number(4, 28)
    pixels = np.asarray(image, np.int16) + noise * strength // 128
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def _compressed(image: Image.Image, quality: int) -> Image.Image:
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def _clipped(channels) -> Colour:
    red, green, blue = (max(0, min(255, channel)) for channel in channels)
    return red, green, blue
