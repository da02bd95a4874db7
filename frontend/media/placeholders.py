"""Puts media into a prompt: in place of each placeholder as many tokens as the medium has rows.

Media meet the placeholders of their kind in order. A text is tokenized with one token for each run of rows, which is
then multiplied: so it gets the tokens that transformers' processors would give to the long text.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import RequestError
from ...protocol.media import MediumKind
from ..text.tokenizer import Tokenizer
from .decoded import DecodedMedium
from .families.family import Family, Replacement


class Span(NamedTuple):
    start: int
    length: int


class Placed(NamedTuple):
    """A medium with the places of its rows."""

    medium: DecodedMedium
    spans: tuple[Span, ...]


class Filled(NamedTuple):
    token_ids: list[int]
    placed: list[Placed]  # in the order of the prompt


class _Waiting:
    """The media of a prompt that have no place yet, and those that have."""

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


def fill_text(
    family: Family, tokenizer: Tokenizer, texts: Sequence[str], media: Sequence[DecodedMedium], *, adds: bool
) -> Filled:
    """The tokens of a text in pieces, none of whose borders becomes a token; `adds` special tokens around it."""
    waiting = _Waiting(family, media)
    pattern = re.compile("|".join(re.escape(each) for each in sorted(family.placeholders, key=len, reverse=True)))

    def replaced(found: re.Match[str]) -> str:
        return waiting.next(family.placeholders[found[0]]).text

    texts = [pattern.sub(replaced, text) for text in texts]
    waiting.check_empty()
    found = tokenizer.encode_batch(texts, add_special_tokens=adds)
    return _multiplied(family, tokenizer, [token for ids in found for token in ids], waiting)


def fill_ids(
    family: Family, tokenizer: Tokenizer, token_ids: Sequence[int], media: Sequence[DecodedMedium]
) -> Filled:
    """The same for a prompt that is tokenized already."""
    waiting = _Waiting(family, media)
    kinds = {tokenizer.token_to_id(text): kind for text, kind in family.placeholders.items()}
    single: list[int] = []
    for token in token_ids:
        if (kind := kinds.get(token)) is None:
            single.append(token)
        else:
            single += tokenizer.encode(waiting.next(kind).text, add_special_tokens=False)
    waiting.check_empty()
    return _multiplied(family, tokenizer, single, waiting)


def _multiplied(family: Family, tokenizer: Tokenizer, single: Sequence[int], waiting: _Waiting) -> Filled:
    """Each row token becomes its run of them."""
    row_ids = {tokenizer.token_to_id(text) for text in family.row_tokens.values()}
    places = [place for place, token in enumerate(single) if token in row_ids]
    if len(places) != sum(len(replacement.runs) for _, replacement in waiting.taken):
        raise RequestError(
            f"The prompt spells {' or '.join(dict.fromkeys(family.row_tokens.values()))} itself, which stands for what "
            "a model sees. Leave it out; placeholders become as many as there must be."
        )
    token_ids: list[int] = []
    placed: list[Placed] = []
    done, next_place = 0, iter(places)
    for medium, replacement in waiting.taken:
        spans = []
        for length in replacement.runs:
            place = next(next_place)
            token_ids += single[done:place]
            spans.append(Span(len(token_ids), length))
            token_ids += [single[place]] * length
            done = place + 1
        placed.append(Placed(medium, tuple(spans)))
    token_ids += single[done:]
    return Filled(token_ids, placed)
