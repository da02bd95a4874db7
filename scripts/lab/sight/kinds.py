"""Every kind of picture, how often it is drawn in training, and the questions that measure.

Knows the kinds by name, nothing of tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PIL import Image

from ..text.example import Draw
from .asking import Question, Seen, is_on_side, worded
from .charts import chart_seen
from .pairs import pair_seen
from .printed import number_seen, word_seen
from .shape_questions import shapes_seen
from .talk import talk_heard

# What draws each, and how often: among pictures with questions, and among those that teach the eyes alone, to which
# letters are by far the hardest.
PICTURES: Mapping[str, tuple[Callable[[Draw], Seen], float, float]] = {
    "shapes": (shapes_seen, 0.38, 0.15),
    "numbers": (number_seen, 0.12, 0.12),
    "words": (word_seen, 0.26, 0.63),
    "charts": (chart_seen, 0.14, 0.1),
    "pairs": (pair_seen, 0.08, 0.0),
    "talk": (talk_heard, 0.02, 0.0),
}
# What is asked, and of which pictures. "places" is for training alone: it says all of a picture at once.
KINDS = {
    "counting": ("shapes",), "colours": ("shapes",), "shapes": ("shapes",), "positions": ("shapes",),
    "presence": ("shapes",), "comparing": ("shapes",), "numbers": ("numbers",), "words": ("words",),
    "print": ("words", "numbers"), "charts": ("charts",), "descriptions": ("shapes", "words", "numbers", "charts"),
    "pairs": ("pairs",), "talk": ("talk",),
}  # fmt: skip


@dataclass(frozen=True)
class HeldOut:
    question: Question
    images: tuple[Image.Image, ...]
    key: str


def training_seen(draw: Draw, for_eyes: bool = False) -> Seen:
    """One of the training's pictures."""
    names = list(PICTURES)
    name = draw.random.choices(names, [eyes if for_eyes else asked for _, asked, eyes in PICTURES.values()])[0]
    return PICTURES[name][0](draw)


def held_out(kind: str, count: int, seed: str = "held out") -> list[HeldOut]:
    """The first so many held-out questions of a kind, each of a picture of its own."""
    draw = Draw(f"{seed} {kind}", held_out=True)
    found: list[HeldOut] = []
    while len(found) < count:
        seen = PICTURES[draw.one(KINDS[kind])][0](draw)
        asks = [ask for ask in seen.asks if ask.kind == kind and is_on_side(draw, ask)]
        if asks:
            ask = draw.one(asks)
            found.append(HeldOut(worded(draw, ask), seen.images, " ".join(ask.keys)))
    return found
