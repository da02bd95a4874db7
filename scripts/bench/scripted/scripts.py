"""Prompts that carry their answers: a script, filler, and the prompt proper, always of one length.

The vocabulary is in three parts. Ids of the first are the text's; those of the second and third stand for the same
tokens within a script. A model reads both alike, and a draft model errs wherever the third part is used.
"""

import random
from pathlib import Path
from typing import NamedTuple

from .sources import tokenizer
from .texts import KINDS, Text

DISTANCE = 1023  # tokens that the model looks back; a prompt has one more
FIRST_ID = 10  # below lie ids that mean something
AGREEMENT = 0.6  # share of an answer's tokens that a draft model gets right


class Script(NamedTuple):
    kind: str
    name: str
    prompt: list[int]
    answer: list[int]


def third_of(vocabulary: int) -> int:
    """The size of each of the three parts."""
    return vocabulary // 3


def scripts_of(tokenizer_file: Path, vocabulary: int) -> dict[str, list[Script]]:
    """All texts, by kind of work."""
    encode = tokenizer(tokenizer_file).encode
    return {
        kind: [scripted(text, encode(text.prompt).ids, encode(text.answer).ids, vocabulary) for text in texts()]
        for kind, texts in KINDS.items()
    }


def scripted(text: Text, prompt: list[int], answer: list[int], vocabulary: int, distance: int = DISTANCE) -> Script:
    """Join a text's prompt and answer, both as ids from 0 on."""
    third, chance = third_of(vocabulary), random.Random(text.name)
    prompt, answer = ([FIRST_ID + token for token in ids] for ids in (prompt, answer))
    if max(prompt + answer) >= third:
        raise ValueError(f"{text.name} has ids up to {max(prompt + answer)}, and the text's part ends at {third}.")
    script = [(1 if chance.random() < AGREEMENT else 2) * third + token for token in answer]
    filler = distance + 1 - len(script) - len(prompt)
    if filler < 0:
        raise ValueError(f"{text.name} is {-filler} tokens too long for a model that looks {distance} tokens back.")
    return Script(text.kind, text.name, script + [vocabulary - 1] * filler + prompt, answer)
