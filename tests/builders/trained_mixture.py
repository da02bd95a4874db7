"""The tiny mixture of experts that `scripts/lab/train experts` has trained, and questions that it was not shown."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

FOLDER = Path(__file__).with_name("trained_experts")
TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
LONGEST = 48  # tokens of an answer
_END = TOKENIZER.token_to_id("<|im_end|>")


class Question(NamedTuple):
    kind: str
    prompt: list[int]
    answer: str


def questions(per_kind: int) -> list[Question]:
    """Held-out ones, of every kind that it has learnt."""
    from lab.pocket.experts import EXPERTS_KINDS
    from lab.pocket.tokens import prompt_ids
    from lab.text.example import LETTER_GAP, rendered_answer
    from lab.text.mixture import held_out

    found = [example for kind in EXPERTS_KINDS for example in held_out(kind, per_kind, kinds=EXPERTS_KINDS)]
    return [
        Question(example.kind, prompt_ids(TOKENIZER, example), rendered_answer(example).replace(LETTER_GAP, ""))
        for example in found
    ]


def ended(tokens: list[int]) -> list[int]:
    """Up to the end of the turn, with it."""
    return tokens[: tokens.index(_END) + 1] if _END in tokens else tokens


def share_right(asked: list[Question], answers: list[list[int]]) -> float:
    texts = (TOKENIZER.decode(ended(tokens), skip_special_tokens=False) for tokens in answers)
    return sum(text == question.answer for question, text in zip(asked, texts, strict=True)) / len(asked)


def changed(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Path:
    """A copy of the model with some tensors replaced by what `change` gives."""
    shutil.copytree(FOLDER, folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | change(tensors), folder / "model.safetensors", {"format": "pt"})
    return folder
