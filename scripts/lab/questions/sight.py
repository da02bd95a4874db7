"""The held-out questions that pocket-sight is measured by, each over a drawing of its own.

They come from the training's own generators, on the other side of their split: the combination that is asked for
(shape, colour, count, place), the word or the number is in no training question, and neither is the wording. Of what
is said without a picture the wording alone is held out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from penstock import SamplingParams

from ..sight.kinds import KINDS, HeldOut, held_out
from ..text.example import LETTER_GAP

PER_KIND = 154


@dataclass(frozen=True)
class Question:
    kind: str
    key: str
    text: str
    images: tuple[Image.Image, ...]
    expected: str
    tools: None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, Any]]:
        pictures = [{"type": "image", "image": image} for image in self.images]
        return [{"role": "user", "content": [*pictures, {"type": "text", "text": self.text}]}]

    def is_answered_by(self, answer: str) -> bool:
        return answer.strip() == self.expected

    def params(self) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=64)


def questions(per_kind: int = PER_KIND) -> list[Question]:
    """So many of every kind."""
    return [_question(each) for kind in KINDS for each in held_out(kind, per_kind)]


def _question(asked: HeldOut) -> Question:
    question = asked.question
    return Question(question.kind, asked.key, question.text, asked.images, question.answer.replace(LETTER_GAP, ""))
