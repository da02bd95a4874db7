"""Pictures of shapes with questions: how many, which, of which colour, where, the largest, and all of them in a
sentence."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..text.example import Draw
from .asking import DESCRIBE, Ask, Seen
from .canvas import Canvas, random_size
from .shapes import CELLS, SHAPES, Thing, draw_thing, scattered

PLURALS = {"cross": "crosses"}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_MOST_DESCRIBED = 4

_HOW_MANY = (
    "How many {things}[ are there| do you see| can you see| are in the picture| does the picture show|]?",
    "[Count|Please count] the {things}[ in the picture| here|].",
    "[What is the number of|Number of] {things}[ in this picture| you see|]?",
    "[In this picture, how|Here, how|And how] many {things} [are there|do you see|are shown]?",
)
_COLOUR = (
    "[What|Which] [colour|color] [is|has] the {shape}[ here| in the picture|]?",
    "[What is|Name|Tell me|What's] the [colour|color] of the {shape}[ here| you see|].",
    "[The {shape}: what|The {shape} is what|And the {shape}, what] [colour|color][ is it|]?",
)
_SHAPE_OF = (
    "[What|Which] shape is {colour}[ here| in the picture|]?",
    "[What|Which] [is|would be] the {colour} [shape|thing|figure|one][ here| in this picture|]?",
    "[Name|Tell me|Say] the shape [that is|which is|in] {colour}.",
    "What [{colour} shape|{colour} thing|{colour} figure] [is there|do you see|is in the picture|is shown]?",
)
_ONLY_SHAPE = (
    "[What|Which] shape [is this|is that|is it|do you see|is shown|is in the picture]?",
    "[Name|Tell me|Say] the shape[ here| in the picture| you see|].",
    "[What|Which] [figure|form] [is this|is that|do you see|is shown here]?",
)
_ONLY_COLOUR = (
    "[What|Which] [colour|color] is [it|this|this shape|the shape|this figure][ here|]?",
    "[Name|Tell me|Say] [its|the] [colour|color][ of the shape| of the figure|].",
)
_WHAT_IS_AT = (
    "[What|Which shape] is [at|in] the {cell}[ of the picture|]?",
    "[What|Which shape] [do you see|can you see|is there] [at|in] the {cell}?",
    "[Name|Tell me] the shape [at|in] the {cell}.",
    "[Look at the {cell}: what|At the {cell}, what] [is there|shape is it|do you see]?",
)
_WHERE = (
    "Where is the {name}[ in the picture| here|]?",
    "[In which|In what|At which] [part|place|corner or side] [of the picture |]is the {name}?",
    "[Where do you see|Where can I find|Find|Locate] the {name}[ in this picture|].",
    "[Say|Tell me|Name] the [position|place] of the {name}.",
)
_IS_THERE = (
    "[Is there|Is there here|And is there] {thing}[ in the picture| here| in this picture|]?",
    "[Do you|Can you] see {thing}[ in the picture| here|]?",
    "[Does this picture|Does the picture|Does it] [show|have|contain] {thing}?",
)
_LARGEST = (
    "[What|Which] [shape |thing |]is the {extreme}[ one|][ here| in the picture|]?",
    "[Name|Tell me|Say] the {extreme} [shape|thing|figure][ here|].",
    "[What|Which] is the {extreme} [shape|thing|figure][ in this picture| you see|]?",
)
_MORE = (
    "[Are there|Do you see] more {things} than {others}[ here| in the picture|]?",
    "[Is the number of {things} larger than that of {others}|Are the {things} more than the {others}]?",
    "[In the picture, are|Here, are] there more {things} than {others}?",
)
_BESIDE = (
    "Is the {name} {side} the {other}[ here| in the picture| in this picture|]?",
    "[Do you see|Can you see|Do you find] the {name} {side} the {other}?",
    "[Tell me, is|In the picture, is|Here, is] the {name} {side} the {other}?",
)
_PLACES = (
    "[List|Name] [all shapes|every shape|everything|all things] [with their places|and where it is|with position].",
    "[What is where|Which shape is where|What stands where][ in the picture| here| in this picture|]?",
    "[Describe|Say|Tell me] [what is where|where everything is|where each shape is][ in the picture|].",
)


def all_asks(draw: Draw, things: Sequence[Thing], colours: Sequence[str]) -> Iterator[Ask]:
    yield from _counting(draw, things, colours)
    yield from _naming(things)
    yield from _placing(things)
    yield from _presence(draw, things, colours)
    yield from _comparing(draw, things)
    yield from _describing(things)


def plural(name: str) -> str:
    return PLURALS.get(name, name + "s") if " " not in name else f"{name.split()[0]} {plural(name.split()[1])}"


def with_article(name: str) -> str:
    return f"an {name}" if name.startswith("o") else f"a {name}"


def counts(things: Sequence[Thing]) -> Counter[str]:
    """Count things by colour, by shape, and by both."""
    return Counter(name for thing in things for name in (thing.colour, thing.shape, thing.name))


def _counting(draw: Draw, things: Sequence[Thing], colours: Sequence[str]) -> Iterator[Ask]:
    found = counts(things)
    absent = [draw.one(SHAPES), f"{draw.one(colours)} {draw.one(SHAPES)}"] if draw.chance(0.4) else []
    for name in [*found, *(name for name in absent if name not in found)]:
        spoken = f"{name} shapes" if name in colours else plural(name)
        keys = (f"count {name} {found[name]} {things[0].spot}",)
        yield Ask("counting", keys, _HOW_MANY, str(found[name]), {"things": spoken})
    # All of them are counted as often as all names together.
    for number in range(max(1, len(found) // 3)):
        spoken = ("shapes", "things", "figures")[number % 3]
        keys = (f"count {spoken} {len(things)} {things[0].spot}",)
        yield Ask("counting", keys, _HOW_MANY, str(len(things)), {"things": spoken})


def _naming(things: Sequence[Thing]) -> Iterator[Ask]:
    shapes, colours = Counter(thing.shape for thing in things), Counter(thing.colour for thing in things)
    for thing in things:
        place = f"{thing.name} {thing.spot}"
        if shapes[thing.shape] == 1:
            yield Ask("colours", (f"colour {place}",), _COLOUR, thing.colour, {"shape": thing.shape})
        if colours[thing.colour] == 1:
            yield Ask("shapes", (f"shape {place}",), _SHAPE_OF, thing.shape, {"colour": thing.colour})
        if len(things) == 1:
            yield Ask("shapes", (f"shape {place}",), _ONLY_SHAPE, thing.shape)
            yield Ask("colours", (f"colour {place}",), _ONLY_COLOUR, thing.colour)


def _placing(things: Sequence[Thing]) -> Iterator[Ask]:
    cells = Counter(_cell_with_border(thing) for thing in things)
    names = Counter(thing.name for thing in things)
    shapes = Counter(thing.shape for thing in things)
    is_clear = all(thing.cell for thing in things)
    for thing in things:
        if thing.cell is None:
            continue
        key = (f"where {thing.name} {thing.spot}",)
        if names[thing.name] == 1:
            yield Ask("positions", key, _WHERE, thing.cell, {"name": thing.name})
        if shapes[thing.shape] == 1:
            yield Ask("positions", key, _WHERE, thing.cell, {"name": thing.shape})
        if is_clear and cells[thing.cell] == 1 and len(things) > 1:
            answer = with_article(thing.name)
            yield Ask("positions", key, _WHAT_IS_AT, answer, {"cell": thing.cell})


def _cell_with_border(thing: Thing) -> str:
    return CELLS[int(thing.y * 3)][int(thing.x * 3)]


def _presence(draw: Draw, things: Sequence[Thing], colours: Sequence[str]) -> Iterator[Ask]:
    """Ask for as many that are there as aren't; half of the latter have a colour and a shape that others have."""
    found = counts(things)
    present = draw.one([thing.name if draw.chance(0.7) else thing.shape for thing in things])
    near = [f"{one.colour} {other.shape}" for one in things for other in things]
    near += [f"{thing.colour} {draw.one(SHAPES)}" for thing in things]
    near += [f"{draw.one(colours)} {thing.shape}" for thing in things]
    absent = [name for name in near if name not in found] + [name for name in SHAPES if name not in found][:2]
    yield Ask("presence", (f"is there {present} {things[0].spot}",), _IS_THERE, "yes", {"thing": with_article(present)})
    if absent:
        name = draw.one(absent)
        yield Ask("presence", (f"is there {name} {things[0].spot}",), _IS_THERE, "no", {"thing": with_article(name)})


def _comparing(draw: Draw, things: Sequence[Thing]) -> Iterator[Ask]:
    if len(things) < 2:
        return
    by_size = sorted(things, key=lambda thing: thing.radius)
    smallest, largest = by_size[0], by_size[-1]
    if largest.radius > 1.25 * by_size[-2].radius:
        key = (f"largest {largest.name} {largest.spot}",)
        yield Ask("comparing", key, _LARGEST, f"the {largest.name}", {"extreme": draw.one(("largest", "biggest"))})
    if smallest.radius * 1.25 < by_size[1].radius:
        key = (f"smallest {smallest.name} {smallest.spot}",)
        yield Ask("comparing", key, _LARGEST, f"the {smallest.name}", {"extreme": "smallest"})
    yield from _more(things)
    yield from _beside(draw, things)


def _more(things: Sequence[Thing]) -> Iterator[Ask]:
    shapes = Counter(thing.shape for thing in things)
    for one in shapes:
        for other in shapes:
            if shapes[one] != shapes[other] and one != other:
                answer = "yes" if shapes[one] > shapes[other] else "no"
                key = (f"more {one} {shapes[one]} {other} {shapes[other]} {things[0].spot}",)
                yield Ask("comparing", key, _MORE, answer, {"things": plural(one), "others": plural(other)})


def _beside(draw: Draw, things: Sequence[Thing]) -> Iterator[Ask]:
    names = Counter(thing.name for thing in things)
    known = [thing for thing in things if names[thing.name] == 1]
    for one, other in pairwise(known):
        if draw.chance(0.5):
            one, other = other, one
        across, down = one.x - other.x, one.y - other.y
        sides = []
        if abs(across) > 0.12:
            sides.append(draw.one((("left of", across < 0), ("right of", across > 0))))
        if abs(down) > 0.12:
            sides.append(draw.one((("above", down < 0), ("below", down > 0))))
        for side, is_so in sides:
            key = (f"{one.name} {one.spot} {side} {other.name}",)
            values = {"name": one.name, "other": other.name, "side": side}
            yield Ask("comparing", key, _BESIDE, "yes" if is_so else "no", values)


def in_reading_order(things: Sequence[Thing]) -> list[Thing]:
    return sorted(things, key=lambda thing: (int(thing.y * 3), thing.x))


def _describing(things: Sequence[Thing]) -> Iterator[Ask]:
    if len(things) <= _MOST_DESCRIBED:
        names = Counter(thing.name for thing in in_reading_order(things))
        parts = [
            with_article(name) if count == 1 else f"{NUMBERS[count]} {plural(name)}" for name, count in names.items()
        ]
        keys = (f"described {' '.join(f'{thing.name} {thing.spot}' for thing in things)}",)
        yield Ask("descriptions", keys, DESCRIBE, listed(parts).capitalize() + ".")
    if all(thing.cell for thing in things):
        parts = [f"{thing.name} {thing.cell}" for thing in in_reading_order(things)]
        keys = tuple(f"where {thing.name} {thing.spot}" for thing in things)
        yield Ask("places", keys, _PLACES, ", ".join(parts))


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def shapes_seen(draw: Draw) -> Seen:
    canvas = Canvas(draw, *random_size(draw))
    things = scattered(draw, canvas, _how_many(draw))
    for thing in things:
        draw_thing(draw, canvas, thing)
    asks = tuple(all_asks(draw, things, canvas.visible_colours()))
    return Seen((canvas.finished(draw),), asks, (canvas.marks,))


def _how_many(draw: Draw) -> int:
    return draw.random.choices(range(1, 10), (26, 17, 14, 11, 9, 8, 6, 5, 4))[0]
