"""Pictures of something printed: a word, a row of letters, a number; in one colour, in capitals or small letters."""

import math
import string
from collections.abc import Iterator

from PIL import Image, ImageDraw, ImageFont

from ..text.example import Draw
from .asking import DESCRIBE, Ask, Seen, lettered
from .canvas import SCALE, Canvas, font, random_size, shade
from .sizes import MOST_PIXELS

_LIST = """
ant apple arm art bag ball bank bear bed bee bell bike bird blue boat bone book bowl box boy bread brick bus cake call
camp car card cat chair clock cloud club coat coin cold cook corn cow crab cup dance deer desk dice dog door dot dove
down drum duck eagle ear east egg exit eye face fan farm fast fire fish five flag flat fly food foot fork four fox frog
fuel game gas gate gift girl glass goat gold good grass green hall hand hat hello help hen hill home hook horn horse
house ice ink iron jam jar jet juice jump key king kite knee knife lake lamp leaf leg lemon light lion lock long loud
love lunch map mask meat menu milk mint moon mouse mouth nail neck nest net night nine nose note nut oak off oil old one
onion open owl page paint paper park pea pear pen pig pin pipe pizza plane plant plate play pool pump push queen quick
quiz rain red rice ring river road rock roof room root rope rose sail salt sand sea seed seven sheep ship shirt shoe
shop sign silk six sky sleep slow snow soap sock song soup south spoon star start stone stop sugar sun swan table tail
tall tap taxi tea ten tent tiger time toast train tree truck two up van vase vest view wall warm watch water well west
wheel white wind wine wolf wood work world yes zebra zero zone zoo
"""
WORDS = _LIST.split()
_MOST_LETTERS, _MOST_DIGITS = 5, 4
_ALIKE_IN_CASE = set("cosuvwxz")  # their two forms differ in size alone
_EASY_SHARE = 0.2  # single letters, to learn to read by
_SMALLEST, _LARGEST_FONT = 26, 64  # in pixels after resizing

_READ = (
    "[What|Which] {thing} [is this|is that|do you see|is shown|is printed here|is in the picture|does it say]?",
    "[Read|Please read|Can you read|Read me] [the|this] {thing}[ in the picture| here|].",
    "What [does it say|is written here|is printed here|is written in the picture|does the picture say|can you read]?",
    "[Tell me|Write down|Type|Say] the {thing} [you see|in the picture|that is printed here|here].",
)
_FIRST = (
    "What is the {place} {part} [of the {thing}|here|in the picture|of it|]?",
    "[Which|What] {part} [does it|does the {thing}] [begin|start] with?",
    "[With which|With what] {part} does [it|the {thing}] [begin|start]?",
    "[Tell me|Name|Say] the {place} {part}[ of the {thing}|].",
)
_LAST = (
    "What is the {place} {part} [of the {thing}|here|in the picture|of it|]?",
    "[Which|What] {part} [does it|does the {thing}] end with?",
    "[With which|With what] {part} does [it|the {thing}] end?",
    "[Tell me|Name|Say] the {place} {part}[ of the {thing}|].",
)
_LENGTH = (
    "How many {parts} [are there|does the {thing} have|do you see|has the {thing}|are printed here|does it have]?",
    "[Count|Please count] the {parts}[ of the {thing}| here| in the picture|].",
    "[What is the number of|Number of] {parts}[ here| in the {thing}|]?",
)
_INK = (
    "[What|Which] [colour|color] [is|has] the {thing}[ here| in the picture|]?",
    "[What is|Name|Tell me|What's] the [colour|color] of the {thing}[ here| in the picture|].",
    "In [which|what] [colour|color] is [it|the {thing}] [printed|written]?",
)


def word_seen(draw: Draw) -> Seen:
    canvas, colour = _ground(draw)
    word, key = draw.until_admitted(lambda: _word(draw), lambda word: _key("word", word, canvas, colour))
    put_text(draw, canvas, word, colour)
    asks = _asks("words", word, key, ("word", "letter"), colour)
    return Seen((canvas.finished(draw),), tuple(asks), (canvas.marks,))


def number_seen(draw: Draw) -> Seen:
    canvas, colour = _ground(draw)
    number, key = draw.until_admitted(lambda: _number(draw), lambda number: _key("number", number, canvas, colour))
    put_text(draw, canvas, number, colour)
    asks = _asks("numbers", number, key, ("number", "digit"), colour)
    return Seen((canvas.finished(draw),), tuple(asks), (canvas.marks,))


def _word(draw: Draw) -> str:
    """A word of the list, or letters in a row; one letter now and then, in training oftener."""
    form = 0.5 if not draw.held_out and draw.chance(_EASY_SHARE) else draw.random.random()
    if form < 0.5:
        word = draw.one(WORDS)
    else:
        count = 1 if form < 0.56 else draw.number(2, _MOST_LETTERS)
        word = "".join(draw.random.choices(string.ascii_lowercase, k=count))
    # Alone, these could be either: nobody could tell.
    case = 1 if _ALIKE_IN_CASE.issuperset(word) else draw.number(0, 2)
    return (word, word.upper(), word.capitalize())[case]


def _number(draw: Draw) -> str:
    return "".join(draw.random.choices(string.digits, k=draw.number(1, _MOST_DIGITS)))


def _key(thing: str, text: str, canvas: Canvas, colour: str) -> str:
    """A text's key. There are too few of one or two characters; their pictures are held out instead."""
    if len(text) > 2:
        return f"{thing} {text.lower()}"
    return f"{thing} {text.lower()} in {colour} on {canvas.width} {canvas.height}"


def _ground(draw: Draw) -> tuple[Canvas, str]:
    """A ground, and the name of a colour that can be read on it."""
    canvas = Canvas(draw, *sorted(random_size(draw, low=110, widest=draw.one((1.6, 3.0))), reverse=True))
    return canvas, draw.one(canvas.legible_colours())


def put_text(draw: Draw, canvas: Canvas, text: str, colour: str) -> None:
    """Somewhere, in a size that can still be read after resizing."""
    resized = min(1.0, (MOST_PIXELS / (canvas.width * canvas.height)) ** 0.5)
    fits = min(canvas.width * 0.9 / (0.62 * len(text) + 0.2), canvas.height * 0.78)
    size = min(fits, draw.random.uniform(_SMALLEST, _LARGEST_FONT) / resized)
    face = font(int(size * SCALE))
    stroke = draw.random.choices((0, 1, 2), (6, 3, 1))[0] if size > 20 else 0
    left, top, right, bottom = face.getbbox(text, stroke_width=stroke)
    mask = Image.new("L", (int(right - left) + 8, int(bottom - top) + 8), 0)
    ImageDraw.Draw(mask).text((4 - left, 4 - top), text, fill=255, font=face, stroke_width=stroke)
    upright, angle = mask.size, draw.random.uniform(-9, 9) if draw.chance(0.4) else 0.0
    if angle:
        mask = mask.rotate(angle, Image.Resampling.BILINEAR, expand=True)
    wide, high = canvas.image.size
    if mask.width > wide or mask.height > high:
        mask.thumbnail((wide, high))
    x, y = draw.number(0, wide - mask.width), draw.number(0, high - mask.height)
    canvas.image.paste(shade(draw, colour), (x, y), mask)
    for letter, box in _letter_boxes(face, text, 4 - left, 4 - top):
        canvas.mark(letter, colour, *_turned(box, upright, mask.size, angle, (x, y)))


Box = tuple[float, float, float, float]


def _letter_boxes(face: ImageFont.FreeTypeFont, text: str, x: float, y: float) -> Iterator[tuple[str, Box]]:
    for number, letter in enumerate(text):
        start, end = face.getlength(text[:number]), face.getlength(text[: number + 1])
        _, top, _, bottom = face.getbbox(letter)
        yield letter, (x + start, y + top, x + end, y + bottom)


def _turned(box: Box, size: tuple[int, int], turned: tuple[int, int], angle: float, at: tuple[int, int]) -> Box:
    """The box where its middle is after a turn around the middle of what it lies in."""
    left, top, right, bottom = box
    x, y = (left + right - size[0]) / 2, (top + bottom - size[1]) / 2
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = at[0] + turned[0] / 2 + cosine * x + sine * y, at[1] + turned[1] / 2 - sine * x + cosine * y
    wide, high = (right - left) / 2, (bottom - top) / 2
    return x - wide, y - high, x + wide, y + high


def _asks(kind: str, text: str, key: str, called: tuple[str, str], colour: str) -> Iterator[Ask]:
    thing, part = called
    is_letter = kind == "words" and len(text) == 1
    whole = {"thing": "letter" if is_letter else called_by(text, thing)}
    for _ in range(3):  # what it is for is asked oftenest
        yield Ask(kind, (key,), _READ, lettered(text), whole)
    yield Ask("print", (key,), _INK, colour, whole)
    described = f"The {whole['thing']} {lettered(text)} in {colour}."
    yield Ask("descriptions", (key,), DESCRIBE, described)
    if len(text) == 1:
        return
    yield Ask("print", (key,), _FIRST, text[0], {**whole, "place": "first", "part": part})
    yield Ask("print", (key,), _LAST, text[-1], {**whole, "place": "last", "part": part})
    yield Ask("print", (key,), _LENGTH, str(len(text)), {**whole, "parts": part + "s"})


def called_by(text: str, thing: str) -> str:
    return "digit" if len(text) == 1 and thing == "number" else thing
