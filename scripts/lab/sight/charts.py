"""Pictures of bar charts: how many bars, the tallest, the shortest, one beside another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..text.example import Draw
from .asking import DESCRIBE, Ask, Seen
from .canvas import SCALE, Canvas, font, ink, random_size, shade

_LABELS = ("ABCDEF", "PQRSTU", "KLMNOP", "123456", "XYZABC")
_STEP = 0.1  # of the tallest possible bar: by so much heights differ at least

_EXTREME = (
    "Which bar is [the |]{extreme}[ here| in the chart|]?",
    "[What|Which] is the {extreme} bar[ here| in the chart| of the chart|]?",
    "[Name|Tell me|Find|Say] the {extreme} bar[ in this chart|].",
    "[In this chart, which|Here, which|And which] bar is [the |]{extreme}?",
)
_EXTREME_COLOUR = (
    "[What|Which] [colour|color] [is|has] the {extreme} bar[ here| in the chart|]?",
    "[What is|Name|Tell me|What's] the [colour|color] of the {extreme} bar[ here| in the chart|].",
)
_HOW_MANY = (
    "How many bars[ are there| do you see| can you see| are in the chart| does the chart have|]?",
    "[Count|Please count] the bars[ in the chart| here| of the chart|].",
    "[What is the number of|Number of] bars[ in this chart| you see|]?",
)
_TALLER = (
    "Is [bar |the bar |]{one} {longer} than [bar |]{other}[ here| in the chart|]?",
    "[Would you say|Do you see] that {one} is {longer} than {other}?",
    "[In this chart, is|Here, is] {one} {longer} than {other}?",
)
_COLOUR_OF = (
    "[What|Which] [colour|color] [is|has] bar {label}[ here| in the chart|]?",
    "[What is|Name|Tell me|What's] the [colour|color] of bar {label}[ here| in the chart|].",
)


@dataclass(frozen=True)
class Bar:
    label: str  # what stands below it; if nothing does, its colour
    colour: str
    height: float  # as a share of the plot's


def chart_seen(draw: Draw) -> Seen:
    canvas = Canvas(draw, *random_size(draw, low=128))
    bars, is_labelled = _bars(draw, canvas)
    _draw_bars(draw, canvas, bars, is_labelled)
    return Seen((canvas.finished(draw),), tuple(_asks(draw, bars, is_labelled)), (canvas.marks,))


def _bars(draw: Draw, canvas: Canvas) -> tuple[list[Bar], bool]:
    count = draw.number(2, 5)
    is_labelled = draw.chance(0.6)
    colours = draw.some(canvas.visible_colours(), count)
    if is_labelled and draw.chance(0.3):
        colours = [colours[0]] * count
    labels = draw.one(_LABELS)[:count] if is_labelled else colours
    steps = draw.some(range(2, int(1 / _STEP) + 1), count)
    heights = [step * _STEP - draw.random.uniform(0, 0.02) for step in steps]
    return [Bar(label, colour, height) for label, colour, height in zip(labels, colours, heights)], is_labelled


def _draw_bars(draw: Draw, canvas: Canvas, bars: Sequence[Bar], is_labelled: bool) -> None:
    width, height = canvas.width * SCALE, canvas.height * SCALE
    letter = int(min(max(0.13 * height, 20 * SCALE), 0.2 * height)) if is_labelled else 0
    left, right = 0.08 * width, (1 - draw.random.uniform(0.03, 0.1)) * width
    top, bottom = draw.random.uniform(0.03, 0.1) * height, height - 1.3 * letter - 0.05 * height
    line = ink(draw, canvas)
    pitch = (right - left) / len(bars)
    share = draw.random.uniform(0.5, 0.85)
    outline = line if draw.chance(0.2) else None
    for number, bar in enumerate(bars):
        start = left + pitch * (number + (1 - share) / 2)
        end = start + pitch * share
        box = (start, bottom - bar.height * (bottom - top), end, bottom)
        canvas.draw.rectangle(box, fill=shade(draw, bar.colour), outline=outline, width=2)
        canvas.mark("bar", bar.colour, *box)
        if is_labelled:
            place = ((start + end) / 2, bottom + 0.65 * letter)
            canvas.draw.text(place, bar.label, fill=line, font=font(letter), anchor="mm")
            canvas.mark(bar.label, "black", *canvas.draw.textbbox(place, bar.label, font=font(letter), anchor="mm"))
    if draw.chance(0.8):
        canvas.draw.line((left, bottom, right, bottom), fill=line, width=draw.number(1, 2) * SCALE)
    if draw.chance(0.5):
        canvas.draw.line((left, top, left, bottom), fill=line, width=draw.number(1, 2) * SCALE)


def _asks(draw: Draw, bars: Sequence[Bar], is_labelled: bool) -> Iterator[Ask]:
    by_height = sorted(bars, key=lambda bar: bar.height)
    order = " ".join(f"{100 * bar.height:.0f}" for bar in bars)
    has_colours = len({bar.colour for bar in bars}) == len(bars)
    highs, lows = ("tallest", "highest", "longest", "largest"), ("shortest", "lowest", "smallest")
    for bar, words in ((by_height[-1], highs), (by_height[0], lows)):
        keys = (f"extreme bar {order} {bar.label}",)
        for _ in range(2):
            yield Ask("charts", keys, _EXTREME, bar.label, {"extreme": draw.one(words)})
        if has_colours:
            keys = (f"extreme bar {order} {bar.colour}",)
            yield Ask("charts", keys, _EXTREME_COLOUR, bar.colour, {"extreme": draw.one(words)})
    keys = (f"bars {len(bars)} {order}",)
    yield Ask("charts", keys, _HOW_MANY, str(len(bars)))
    one, other = draw.some(bars, 2)
    longer = draw.one(("taller", "higher", "shorter", "lower"))
    is_so = (one.height > other.height) == (longer in ("taller", "higher"))
    keys = (f"taller {order} {one.label} {other.label}",)
    named = {"one": one.label, "other": other.label, "longer": longer}
    if not is_labelled:
        named |= {"one": f"the {one.label} one", "other": f"the {other.label} one"}
    yield Ask("charts", keys, _TALLER, "yes" if is_so else "no", named)
    if is_labelled and has_colours:
        keys = (f"bar colour {one.label} {one.colour} {order}",)
        yield Ask("charts", keys, _COLOUR_OF, one.colour, {"label": one.label})
    heading = "A bar chart with " + ("one", "two", "three", "four", "five")[len(bars) - 1] + " bars"
    keys = (f"chart described {order} {by_height[-1].label}",)
    yield Ask("descriptions", keys, DESCRIBE, f"{heading}, {by_height[-1].label} is the tallest.")
