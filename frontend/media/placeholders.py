"""Inserts media into a prompt: replaces each placeholder by one token per row of its medium, and counts positions.

Media are assigned to the placeholders of their kind in order. A text is tokenized with one token for each run of rows,
which is then repeated: so it gets the same tokens as the long text in transformers' processors.

Some models rotate by three positions: in time, height and width. Text advances all three alike. A row's position is the
start of its run plus its coordinates in the grid; the text after a run continues from its start plus the longer side of
the grid, as in transformers.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy

from ...protocol.errors import LimitError, RequestError
from ...protocol.media import Medium, MediumKind
from ...protocol.wire import column
from ..text.tokenizer import Tokenizer
from .decoded import DecodedMedium
from .families.family import Family, Grid, Replacement

# From a video's first frame to its last: hours of it. Rotary tables grow with the largest position.
_MOST_STEPS = 1 << 15


class Expanded(NamedTuple):
    """A prompt with its media inserted."""

    token_ids: list[int]
    media: list[Medium]  # in the order of the prompt
    positions: bytes  # int32 [3, tokens], or b"" if the positions are those of text or there are no media
    end_position: int  # the position of the answer's first token
    text: str | None  # without cuts; None if ids were given


class Span(NamedTuple):
    start: int
    length: int


class Placed(NamedTuple):
    """A medium with the positions of its rows."""

    medium: DecodedMedium
    spans: tuple[Span, ...]


class Filled(NamedTuple):
    token_ids: list[int]
    placed: list[Placed]  # in the order of the prompt


class _Waiting:
    """The media of a prompt that are not inserted yet, and those that are."""

    def __init__(self, family: Family, media: Sequence[DecodedMedium]) -> None:
        self._family = family
        self._media = media
        self._left = {kind: [each for each in media if each.kind == kind] for kind in ("image", "video")}
        self.taken: list[tuple[DecodedMedium, Replacement]] = []

    def next(self, kind: MediumKind) -> Replacement:
        if not self._left[kind]:
            raise self.mismatch(1)
        medium = self._left[kind].pop(0)
        self.taken.append((medium, self._family.replacement(medium)))
        return self.taken[-1][1]

    def check_empty(self) -> None:
        if any(self._left.values()):
            raise self.mismatch(0)

    def mismatch(self, more: int) -> RequestError:
        given = [sum(each.kind == kind for each in self._media) for kind in ("image", "video")]
        places = "more places for media" if more else "fewer places for media"
        written = ", ".join(self._family.placeholders)
        return RequestError(
            f"The prompt has {places} than there are: it came with {given[0]} image(s) and {given[1]} video(s). Each "
            f"needs its placeholder ({written}); a chat template writes them where a message's content holds media."
        )


def expanded_text(
    family: Family, tokenizer: Tokenizer, texts: Sequence[str], media: Sequence[DecodedMedium], *, adds: bool
) -> Expanded:
    """Expand a text in pieces, whose borders never become part of a token; `adds` adds special tokens around it."""
    waiting = _Waiting(family, media)
    pattern = re.compile("|".join(re.escape(each) for each in sorted(family.placeholders, key=len, reverse=True)))

    def replaced(found: re.Match[str]) -> str:
        return waiting.next(family.placeholders[found[0]]).text

    replaced_texts = [pattern.sub(replaced, text) for text in texts]
    waiting.check_empty()
    found = tokenizer.encode_batch(replaced_texts, add_special_tokens=adds)
    filled = _multiplied(family, tokenizer, [token for ids in found for token in ids], waiting)
    return _expanded(family, filled, "".join(texts))


def expanded_ids(
    family: Family, tokenizer: Tokenizer, token_ids: Sequence[int], media: Sequence[DecodedMedium]
) -> Expanded:
    """The same for a prompt that is already tokenized."""
    waiting = _Waiting(family, media)
    kinds = {tokenizer.token_to_id(text): kind for text, kind in family.placeholders.items()}
    single: list[int] = []
    for token in token_ids:
        if (kind := kinds.get(token)) is None:
            single.append(token)
        else:
            single += tokenizer.encode(waiting.next(kind).text, add_special_tokens=False)
    waiting.check_empty()
    return _expanded(family, _multiplied(family, tokenizer, single, waiting), None)


def _multiplied(family: Family, tokenizer: Tokenizer, single: Sequence[int], waiting: _Waiting) -> Filled:
    """Replace each row token by its run of tokens."""
    row_ids = {tokenizer.token_to_id(text) for text in family.row_tokens.values()}
    positions = [index for index, token in enumerate(single) if token in row_ids]
    if len(positions) != sum(len(replacement.runs) for _, replacement in waiting.taken):
        raise RequestError(
            f"The prompt spells {' or '.join(dict.fromkeys(family.row_tokens.values()))} itself, which stands for what "
            "a model sees. Leave it out; placeholders become as many as there must be."
        )
    token_ids: list[int] = []
    placed: list[Placed] = []
    done, next_position = 0, iter(positions)
    for medium, replacement in waiting.taken:
        spans = []
        for length in replacement.runs:
            position = next(next_position)
            token_ids += single[done:position]
            spans.append(Span(len(token_ids), length))
            token_ids += [single[position]] * length
            done = position + 1
        placed.append(Placed(medium, tuple(spans)))
    token_ids += single[done:]
    return Filled(token_ids, placed)


def _expanded(family: Family, filled: Filled, text: str | None) -> Expanded:
    num_tokens = len(filled.token_ids)
    media = [
        Medium(
            kind=placed.medium.kind,
            digest=placed.medium.digest,
            pixels=placed.medium.pixels,
            shape=placed.medium.shape,
            spans=column(figure for span in placed.spans for figure in span),
            num_patches=family.num_patches(placed.medium),
        )
        for placed in filled.placed
    ]
    if not family.has_grids or not media:
        return Expanded(filled.token_ids, media, b"", num_tokens, text)
    runs = [
        Run(*span, grid)
        for placed in filled.placed
        for span, grid in zip(placed.spans, family.grids(placed.medium), strict=True)
    ]
    positions = positions_of(num_tokens, runs)
    return Expanded(filled.token_ids, media, positions.tobytes(), int(positions.max()) + 1, text)


# --- positions -------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Consecutive rows of a medium in the prompt."""

    start: int
    length: int
    grid: Grid


def positions_of(num_tokens: int, runs: Sequence[Run]) -> numpy.ndarray:
    """int32 [3, tokens]; runs in the order of the prompt."""
    positions = numpy.empty((3, num_tokens), numpy.int32)
    token = position = 0
    for run in runs:
        position = _count(positions, token, run.start, position)
        token = run.start + run.length
        positions[:, run.start : token] = position + _offsets(run.grid)
        position += max(run.grid.height, run.grid.width)
    _count(positions, token, num_tokens, position)
    return positions


def _count(positions: numpy.ndarray, start: int, end: int, position: int) -> int:
    """Number the tokens of a text; returns the position after it."""
    positions[:, start:end] = numpy.arange(position, position + end - start, dtype=numpy.int32)
    return position + end - start


def _offsets(grid: Grid) -> numpy.ndarray:
    """The coordinates of each row, relative to its run's start."""
    if grid.times[-1] > _MOST_STEPS:
        raise LimitError(
            f"A video may last {_MOST_STEPS:,} steps of the model's time, and one of the prompt lasts "
            f"{grid.times[-1]:,}. Send a part of it, or say how many frames a second there are (sample_fps)."
        )
    times = numpy.array(grid.times, numpy.int32)
    return numpy.stack(
        [each.ravel() for each in numpy.meshgrid(times, range(grid.height), range(grid.width), indexing="ij")]
    ).astype(numpy.int32)
