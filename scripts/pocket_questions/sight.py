"""The held-out questions that pocket-sight is measured by, each over a drawing of its own.

They come from the training's own generators, on the other side of their split: the combination that is asked for
(shape, colour, count, place), the word or the number is in no training question, and neither is the wording. Of what
is said without a picture the wording alone is held out.
"""

from dataclasses import dataclass

from PIL import Image
from pocket.example import LETTER_GAP
from pocket_sight.kinds import KINDS, HeldOut, held_out

PER_KIND = 154


@dataclass(frozen=True)
class Question:
    kind: str
    key: str
    text: str
    images: tuple[Image.Image, ...]
    expected: str

    def is_answered_by(self, answer: str) -> bool:
        return answer.strip() == self.expected


def questions(per_kind: int = PER_KIND) -> list[Question]:
    """So many of every kind."""
    return [_question(each) for kind in KINDS for each in held_out(kind, per_kind)]


def _question(asked: HeldOut) -> Question:
    question = asked.question
    return Question(question.kind, asked.key, question.text, asked.images, question.answer.replace(LETTER_GAP, ""))
