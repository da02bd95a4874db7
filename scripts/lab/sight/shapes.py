"""Coloured shapes: where they lie in a picture, and how they are drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..text.example import Draw
from .canvas import SCALE, Canvas, shade

SHAPES = ("circle", "square", "triangle", "star", "diamond", "cross", "heart", "ring")
CELLS = (
    ("top left", "top", "top right"), ("left", "center", "right"), ("bottom left", "bottom", "bottom right"),
)  # fmt: skip
_BORDER = 0.05  # of a side: nearer to a border between cells, a place has no name


@dataclass(frozen=True)
class Thing:
    shape: str
    colour: str
    x: float  # of the centre, as a share of the width
    y: float
    radius: float  # in pixels of the canvas

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"

    @property
    def spot(self) -> str:
        """Where it lies, to a hundredth, for keys: one that says no more than question and answer would teach that this
        answer is never right."""
        return f"at {100 * self.x:.0f} {100 * self.y:.0f}"

    @property
    def cell(self) -> str | None:
        """The name of its place, if it clearly lies there."""
        column, row = (_third(share) for share in (self.x, self.y))
        return None if column is None or row is None else CELLS[row][column]


def scattered(draw: Draw, canvas: Canvas, count: int) -> list[Thing]:
    """So many things that don't touch; often alike in shape or colour, or there would be nothing to count."""
    shapes = draw.some(SHAPES, draw.number(1, min(4, len(SHAPES))))
    colours = draw.some(canvas.visible_colours(), draw.number(1, 4))
    side = min(canvas.width, canvas.height)
    largest = min(0.36, 0.62 / math.sqrt(count)) * side
    things: list[Thing] = []
    for _ in range(count * 30):
        if len(things) == count:
            break
        radius = draw.random.uniform(max(0.55 * largest, 0.09 * side), largest)
        x = draw.random.uniform(radius + 2, canvas.width - radius - 2)
        y = draw.random.uniform(radius + 2, canvas.height - radius - 2)
        if all(_apart(canvas, thing, x, y) > thing.radius + radius + 2 for thing in things):
            shape, colour = draw.one(shapes), draw.one(colours)
            things.append(Thing(shape, colour, x / canvas.width, y / canvas.height, radius))
    return things


def _apart(canvas: Canvas, thing: Thing, x: float, y: float) -> float:
    return math.hypot(thing.x * canvas.width - x, thing.y * canvas.height - y)


def _third(share: float) -> int | None:
    if min(abs(share - 1 / 3), abs(share - 2 / 3)) < _BORDER:
        return None
    return int(share * 3)


def draw_thing(draw: Draw, canvas: Canvas, thing: Thing) -> None:
    x, y, radius = (SCALE * value for value in (thing.x * canvas.width, thing.y * canvas.height, thing.radius))
    colour = shade(draw, thing.colour)
    outline = tuple(channel * 2 // 3 for channel in colour) if draw.chance(0.2) else None
    line = max(2, int(radius * 0.08))
    inner = 0.85 * radius
    canvas.mark(thing.shape, thing.colour, x - inner, y - inner, x + inner, y + inner)
    if thing.shape in ("circle", "ring"):
        box = (x - radius, y - radius, x + radius, y + radius)
        if thing.shape == "ring":
            canvas.draw.ellipse(box, outline=colour, width=int(radius * draw.random.uniform(0.25, 0.45)))
        else:
            canvas.draw.ellipse(box, fill=colour, outline=outline, width=line)
        return
    turn = draw.random.uniform(-0.15, 0.15)
    points = [
        (x + radius * (a * math.cos(turn) - b * math.sin(turn)), y + radius * (a * math.sin(turn) + b * math.cos(turn)))
        for a, b in OUTLINES[thing.shape]
    ]
    canvas.draw.polygon(points, fill=colour, outline=outline, width=line)


def _round(count: int, radii: Sequence[float], start: float) -> list[tuple[float, float]]:
    """Points around the centre, at these distances in turn."""
    angles = [start + 2 * math.pi * number / count for number in range(count)]
    return [
        (radii[number % len(radii)] * math.cos(angle), radii[number % len(radii)] * math.sin(angle))
        for number, angle in enumerate(angles)
    ]


def _heart() -> list[tuple[float, float]]:
    turns = [2 * math.pi * number / 40 for number in range(40)]
    return [
        (
            math.sin(t) ** 3,
            -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16,
        )
        for t in turns
    ]


_ARM = 0.33
OUTLINES = {
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "triangle": _round(3, (1.0,), -math.pi / 2),
    "star": _round(10, (1.0, 0.42), -math.pi / 2),
    "diamond": [(0, -1), (0.75, 0), (0, 1), (-0.75, 0)],
    "cross": [
        (-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM),
        (_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM),
    ],
    "heart": _heart(),
}  # fmt: skip
