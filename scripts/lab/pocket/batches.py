"""Examples packed into rows of tokens, with the answers marked.

Every step's batch comes from the seed, the step's number and the mixture's state, so a resumed run reads what the first
would have read. Conversations in one row see those before them, as later turns see earlier ones: that is where pocket's
steadiness in long conversations comes from.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..text.example import Example
from ..text.mixture import Mixture, training
from .tokens import answer_ids, prompt_ids

TOKENS_PER_STEP = 4096
# A passage lies in a row of the shortest length that holds it; one step in three has one long row of many passages.
ROW_LENGTHS = (64, 96, 128, 192, 256, 320, 448, 576)
LONG_ROW = 768
_NOTHING = 0  # <|endoftext|>, which fills what no conversation does


@dataclass(frozen=True)
class Batch:
    tokens: Tensor  # flat: groups of rows, one behind the other
    shapes: list[tuple[int, int]]  # rows and length of each group
    places: Tensor  # of the tokens before each token of an answer
    targets: Tensor  # those tokens of the answers
    owners: Tensor  # whose answer each belongs to, an index into `examples`
    examples: list[Example]


@dataclass(frozen=True)
class _Passage:
    example: Example
    prompt: list[int]
    answer: list[int]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer) + 1  # and the line end behind it


Row = list[_Passage]


def training_batch(tokenizer: Tokenizer, seed: int, step: int, mixture: Mixture, size: int | None = None) -> Batch:
    passages, tokens = [], 0
    for example in training(f"{seed} step {step}", mixture):
        passages.append(_passage(tokenizer, example))
        tokens += len(passages[-1])
        if tokens >= (size or TOKENS_PER_STEP):
            break
    rows: list[tuple[int, Row]] = []
    if step % 3 == 0:
        rows.append((LONG_ROW, []))
        while sum(map(len, rows[0][1])) + len(passages[-1]) <= LONG_ROW:
            rows[0][1].append(passages.pop())
    # The longest first: what comes later fills their rows.
    for passage in sorted(passages, key=len, reverse=True):
        _place(passage, rows)
    return _packed(rows, _line_end(tokenizer))


def _place(passage: _Passage, rows: list[tuple[int, Row]]) -> None:
    """Put a passage into a row with room, before or after the others, else into the shortest new one."""
    for length, row in rows:
        if sum(map(len, row)) + len(passage) <= length:
            row.insert(len(passage) % 2 * len(row), passage)
            return
    # Longer ones than the longest row are rare, and left out.
    if length := next((length for length in ROW_LENGTHS if length >= len(passage)), None):
        rows.append((length, [passage]))


def single_batch(tokenizer: Tokenizer, examples: list[Example]) -> Batch:
    """Each example in a row of its own."""
    passages = [_passage(tokenizer, example) for example in examples]
    length = max(map(len, passages))
    return _packed([(length, [passage]) for passage in passages], _line_end(tokenizer))


def _passage(tokenizer: Tokenizer, example: Example) -> _Passage:
    return _Passage(example, prompt_ids(tokenizer, example), answer_ids(tokenizer, example))


def _line_end(tokenizer: Tokenizer) -> int:
    return tokenizer.encode("\n").ids[0]


def _packed(rows: list[tuple[int, Row]], line_end: int) -> Batch:
    ids: list[int] = []
    places: list[int] = []
    targets: list[int] = []
    owners: list[int] = []
    examples: list[Example] = []
    rows = sorted(rows, key=lambda row: row[0])
    for length, row in rows:
        end = len(ids) + length
        for passage in row:
            first = len(ids) + len(passage.prompt) - 1
            places += range(first, first + len(passage.answer))
            targets += passage.answer
            owners += [len(examples)] * len(passage.answer)
            examples.append(passage.example)
            ids += [*passage.prompt, *passage.answer, line_end]
        ids += [_NOTHING] * (end - len(ids))
    shapes = [(count, length) for length, count in Counter(length for length, _ in rows).items()]
    return Batch(torch.tensor(ids), shapes, *map(torch.tensor, (places, targets, owners)), examples)
