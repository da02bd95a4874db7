"""Two pictures shown together: which of them has something, and which has more."""

from collections.abc import Iterator

from ..text.example import Draw
from .asking import Ask, Seen
from .canvas import Canvas, random_size
from .shape_questions import counts, with_article
from .shapes import Thing, draw_thing, scattered

_WHICH_HAS = (
    "[Which|Which one] of the [two |]pictures [has|shows|contains] {thing}?",
    "[In which|On which] [picture|image|of the two pictures] is [there |]{thing}?",
    "Which [picture|image] [has|shows|contains] {thing}?",
    "[Where|In which one] [is|do you see|can you see] {thing}[, in the first or the second|]?",
)
_WHICH_HAS_MORE = (
    "[Which|Which one] of the [two |]pictures [has|shows|contains] more [shapes|things|figures]?",
    "[In which|On which] [picture|image] are [there |]more [shapes|things|figures]?",
    "Which [picture|image] [has|shows] [more shapes|the most shapes|more things]?",
)
_FIRST, _SECOND = "the first", "the second"


def pair_seen(draw: Draw) -> Seen:
    (canvas, things), (other_canvas, others) = _small_picture(draw), _small_picture(draw)
    images = (canvas.finished(draw), other_canvas.finished(draw))
    return Seen(images, tuple(_asks(things, others)), (canvas.marks, other_canvas.marks))


def _small_picture(draw: Draw) -> tuple[Canvas, list[Thing]]:
    canvas = Canvas(draw, *random_size(draw, high=150, widest=1.3))
    things = scattered(draw, canvas, draw.number(1, 4))
    for thing in things:
        draw_thing(draw, canvas, thing)
    return canvas, things


def _asks(things: list[Thing], others: list[Thing]) -> Iterator[Ask]:
    first, second = counts(things), counts(others)
    for name in [*first, *second]:
        if (name in first) != (name in second) and (" " in name or name in _shapes(things, others)):
            answer = _FIRST if name in first else _SECOND
            yield Ask(
                "pairs",
                (f"which has {name} {things[0].spot} {others[0].spot}",),
                _WHICH_HAS,
                answer,
                {"thing": with_article(name)},
            )
    if len(things) != len(others):
        answer = _FIRST if len(things) > len(others) else _SECOND
        keys = (f"which has more {things[0].spot} {others[0].spot}",)
        yield Ask("pairs", keys, _WHICH_HAS_MORE, answer)


def _shapes(things: list[Thing], others: list[Thing]) -> set[str]:
    return {thing.shape for thing in (*things, *others)}
