"""Questions about a picture, and their wordings on one side of the split.

A generator draws a picture and lists what may be asked of it (`Ask`): the values that the question names, the answer,
and the keys that say on which side of the split it stands. Wordings are put together as pocket's are, and one in ten of
them is held out as well: a held-out question has a combination, a word or a number and a wording that no training
question has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from PIL import Image

from ..text.example import LETTER_GAP, Draw
from ..text.grammar import expanded, framed, mistyped
from ..text.wording import core, loosened
from .canvas import Mark

FRAMED_SHARE = 0.2
DESCRIBE = (
    "[Describe|Please describe|Can you describe] [the|this] [picture|image][ in a sentence| briefly|].",
    "What [do you see|can you see|is there to see|is shown|is] [in the|in this|on the] [picture|image]?",
    "[What is this|What do you see|What is here|Describe what you see|Say what you see|Tell me what you see].",
    "[What does|Tell me what] the [picture|image] [show|shows]?",
)
_EASY = {"colours": 0.3, "shapes": 0.3}  # how much rarer kinds come that are learnt soon


@dataclass(frozen=True)
class Ask:
    kind: str
    keys: tuple[str, ...]  # in training all of them stand on its side, of a held-out question at least one on the other
    grammars: tuple[str, ...]
    answer: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """Pictures, shown together, and what may be asked of them."""

    images: tuple[Image.Image, ...]
    asks: tuple[Ask, ...]
    marks: tuple[Sequence[Mark], ...] = ()  # of each picture, what was drawn where


@dataclass(frozen=True)
class Question:
    kind: str
    text: str
    answer: str  # with gaps between letters that are tokens of their own


def is_on_side(draw: Draw, ask: Ask) -> bool:
    """Without keys, as of what is said without a picture, its wording alone decides."""
    sides = [draw.admits(key) for key in ask.keys]
    return all(sides) or (draw.held_out and any(sides))


def questions_of(draw: Draw, asks: Sequence[Ask], count: int) -> list[Question]:
    """Up to so many questions of this side, of as many kinds as there are."""
    left = [ask for ask in asks if is_on_side(draw, ask)]
    asked: list[Question] = []
    while left and len(asked) < count:
        kinds = sorted({ask.kind for ask in left} - {question.kind for question in asked}) or [""]
        kind = draw.random.choices(kinds, [_EASY.get(each, 1.0) for each in kinds])[0]
        ask = draw.one([each for each in left if each.kind == kind] or left)
        left.remove(ask)
        asked.append(worded(draw, ask))
    return asked


def worded(draw: Draw, ask: Ask) -> Question:
    """The question in one wording of this side."""
    phrase, _ = draw.until_admitted(lambda: _phrase(draw, ask), lambda phrase: f"wording {core(phrase)}")
    text = mistyped(draw, loosened(draw, phrase, share=0.3)).format(**ask.values)
    return Question(ask.kind, text, ask.answer)


def _phrase(draw: Draw, ask: Ask) -> str:
    return framed(draw, expanded(draw, draw.one(ask.grammars)), FRAMED_SHARE)


def lettered(text: str) -> str:
    """Text whose letters are to be written as tokens of their own, as they are seen."""
    return LETTER_GAP.join(text)
