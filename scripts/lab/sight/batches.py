"""A step's batch: rows of one or two pictures and several questions, of which only the answers are learnt.

Pictures are dear and questions cheap. So most rows are a picture followed by branches, a question and its answer each:
a branch sees the picture and itself, never another branch, and its positions follow the picture's directly, exactly as
if it had been asked alone. Other rows are conversations, with the picture after the first question.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor

from ..text.example import LETTER_GAP, Draw
from .asking import Question, Seen, questions_of
from .kinds import HeldOut, training_seen
from .seeing import patch_targets
from .sizes import MERGE, PATCH, patches

PICTURES_PER_STEP = 32
PICTURES_WITHOUT_WORDS = 64
QUESTIONS_PER_PICTURE = 5
_CONVERSATION_SHARE = 0.12
_SYSTEM_SHARE = 0.08
_SYSTEM = ("You are a helpful assistant.", "Answer briefly.", "You are pocket-sight.")
_ROUND_TO = 16
_FILTERS = (Image.Resampling.BICUBIC,) * 4 + (Image.Resampling.BILINEAR, Image.Resampling.LANCZOS)


@dataclass(frozen=True)
class Patched:
    """Pictures as patches."""

    patches: tuple[tuple[np.ndarray, int, int], ...]
    targets: tuple[np.ndarray, ...] = ()  # what each patch shows

    @property
    def size(self) -> int:
        return len(self.patches[0][0]) if self.patches else 0


@dataclass
class Row:
    tokens: list[int] = field(default_factory=list)
    positions: list[tuple[int, int, int]] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)  # 0: seen by all
    answers: list[tuple[int, int]] = field(default_factory=list)  # places of answers' tokens, and whose they are
    next_position: int = 0

    def add(self, ids: Sequence[int], branch: int, owner: int | None = None) -> None:
        for token in ids:
            if owner is not None:
                self.answers.append((len(self.tokens), owner))
            self.tokens.append(token)
            self.positions.append((self.next_position,) * 3)
            self.branches.append(branch)
            self.next_position += 1

    def add_image(self, token: int, rows: int, columns: int, branch: int) -> None:
        start = self.next_position
        for row in range(rows):
            for column in range(columns):
                self.tokens.append(token)
                self.positions.append((start, start + row, start + column))
                self.branches.append(branch)
        self.next_position = start + max(rows, columns)


@dataclass
class Shown:
    """All pictures of a batch."""

    pixels: Tensor  # bytes of one frame: [patches, 3 * PATCH * PATCH]
    grids: Tensor  # [pictures, 3]
    targets: Tensor  # [patches, 5]: what each shows; empty where the eyes aren't taught


@dataclass
class Batch:
    shown: Shown
    tokens: Tensor  # [rows, length]
    positions: Tensor  # [3, rows, length]
    branches: Tensor  # [rows, length]; -1 is padding
    places: tuple[Tensor, Tensor]  # rows and columns of the tokens before each token to be learnt
    targets: Tensor
    owners: Tensor  # of each target, the question
    kinds: list[str]


def training_batch(tokenizer: Tokenizer, seed: int, step: int) -> Batch:
    """A function of the seed and the step's number."""
    draw = Draw(f"{seed} step {step}", held_out=False)
    rows = []
    for _ in range(PICTURES_PER_STEP):
        seen = training_seen(draw)
        shown = patched(draw, seen)
        if asked := questions_of(draw, seen.asks, QUESTIONS_PER_PICTURE):
            rows.append((shown, asked))
    return made_batch(tokenizer, draw, rows)


def seeing_batch(seed: int, step: int) -> Shown:
    """Pictures without questions."""
    draw = Draw(f"{seed} seeing {step}", held_out=False)
    drawn = [patched(draw, training_seen(draw, for_eyes=True)) for _ in range(PICTURES_WITHOUT_WORDS)]
    return shown_together(sorted(drawn, key=lambda each: each.size))


def patched(draw: Draw, seen: Seen) -> Patched:
    made = tuple(patches(image, draw.one(_FILTERS)) for image in seen.images)
    targets = (patch_targets(marks, rows, columns) for marks, (_, rows, columns) in zip(seen.marks, made))
    return Patched(made, tuple(targets))


def shown_together(drawn: Sequence[Patched]) -> Shown:
    pictures = [picture for each in drawn for picture in each.patches]
    targets = [torch.from_numpy(each) for picture in drawn for each in picture.targets]
    pixels = [torch.from_numpy(frame) for frame, _, _ in pictures]
    return Shown(
        torch.cat(pixels) if pixels else torch.zeros(0, 3 * PATCH * PATCH, dtype=torch.uint8),
        torch.tensor([(1, rows, columns) for _, rows, columns in pictures]),
        torch.cat(targets) if targets else torch.zeros(0, 5, dtype=torch.int16),
    )


def held_out_batch(tokenizer: Tokenizer, asked: Sequence[HeldOut]) -> Batch:
    """Each question with its picture, as a user asks it."""
    draw = Draw("measured", held_out=True)
    rows = [(Patched(tuple(patches(image) for image in each.images)), [each.question]) for each in asked]
    return made_batch(tokenizer, draw, rows, conversations=0.0, systems=0.0)


def made_batch(
    tokenizer: Tokenizer,
    draw: Draw,
    pairs: Sequence[tuple[Patched, list[Question]]],
    conversations: float = _CONVERSATION_SHARE,
    systems: float = _SYSTEM_SHARE,
) -> Batch:
    """Rows sorted by the size of their pictures, so that those of one size are computed together."""
    pairs = sorted(pairs, key=lambda pair: pair[0].size)
    made, kinds = [], []
    for seen, questions in pairs:
        row = Row()
        if draw.chance(systems):
            row.add(_ids(tokenizer, f"<|im_start|>system\n{draw.one(_SYSTEM)}<|im_end|>\n"), 0)
        (_converse if draw.chance(conversations) else _branch)(tokenizer, row, seen, questions, len(kinds))
        kinds += [question.kind for question in questions]
        made.append(row)
    return _stacked(made, shown_together([seen for seen, _ in pairs]), kinds)


def _branch(tokenizer: Tokenizer, row: Row, seen: Patched, questions: Sequence[Question], first: int) -> None:
    row.add(_ids(tokenizer, "<|im_start|>user\n"), 0)
    _add_images(tokenizer, row, seen)
    start = row.next_position
    for number, question in enumerate(questions):
        row.next_position = start
        row.add(_ids(tokenizer, question.text + _ASSISTANT), number + 1)
        row.add(_answer_ids(tokenizer, question), number + 1, first + number)


def _converse(tokenizer: Tokenizer, row: Row, seen: Patched, questions: Sequence[Question], first: int) -> None:
    for number, question in enumerate(questions):
        row.add(_ids(tokenizer, ("\n" if number else "") + "<|im_start|>user\n" + question.text), 0)
        if not number:
            _add_images(tokenizer, row, seen)
        row.add(_ids(tokenizer, _ASSISTANT), 0)
        row.add(_answer_ids(tokenizer, question), 0, first + number)


_ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"


def _add_images(tokenizer: Tokenizer, row: Row, seen: Patched) -> None:
    start, end, pad = _ids(tokenizer, "<|vision_start|><|vision_end|><|image_pad|>")
    for _, rows, columns in seen.patches:
        row.add([start], 0)
        row.add_image(pad, rows // MERGE, columns // MERGE, 0)
        row.add([end], 0)


def _answer_ids(tokenizer: Tokenizer, question: Question) -> list[int]:
    pieces = (question.answer + "<|im_end|>").split(LETTER_GAP)
    return [token for piece in pieces for token in _ids(tokenizer, piece)]


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def _stacked(rows: Sequence[Row], shown: Shown, kinds: list[str]) -> Batch:
    length = -(-max(len(row.tokens) for row in rows) // _ROUND_TO) * _ROUND_TO
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    positions = torch.zeros(3, len(rows), length, dtype=torch.long)
    branches = torch.full((len(rows), length), -1)
    places, targets, owners = [], [], []
    for number, row in enumerate(rows):
        size = len(row.tokens)
        tokens[number, :size] = torch.tensor(row.tokens)
        positions[:, number, :size] = torch.tensor(row.positions).T
        branches[number, :size] = torch.tensor(row.branches)
        for place, owner in row.answers:
            places.append((number, place - 1))
            targets.append(row.tokens[place])
            owners.append(owner)
    return Batch(
        shown,
        tokens,
        positions,
        branches,
        tuple(torch.tensor(places).T),
        torch.tensor(targets),
        torch.tensor(owners),
        kinds,
    )
