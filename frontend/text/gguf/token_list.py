"""The tokens of a GGUF file: their texts, kinds and scores, and their roles (begin, end, padding and so on).

It also finds the tokens that end an answer.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ....protocol.fields.rules import shown
from ..vocabulary.sentencepiece_model import Kind
from .metadata import PREFIX, Metadata, flag, real_numbers, texts, whole_number, whole_numbers

# Names in the keys, the first in the format's own spelling.
_IDS = {
    **dict(bos="bos", eos="eos", eot="eot", eom="eom", unk="unknown", sep="seperator", pad="padding"),
    **dict(cls="cls", mask="mask"),
}
_UNDEFINED = 0
_KINDS = {_UNDEFINED: Kind.UNUSED, **{int(kind): kind for kind in Kind}}
# Converters pad a vocabulary with these to the number of the model's rows.
_FILLING = re.compile(r"\[PAD\d+\]")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class Defaults(NamedTuple):
    """Defaults of a kind of vocabulary, by llama.cpp's rules."""

    ids: Mapping[str, int]
    adds_bos: bool = False
    adds_eos: bool = False


@dataclass(slots=True)
class TokenList:
    texts: list[str]
    kinds: list[Kind]
    scores: list[float]
    ids: dict[str, int]  # tokens with a role: bos, eos, eot, eom, unk, sep, pad, cls, mask
    adds_bos: bool
    adds_eos: bool

    def token(self, task: str) -> str | None:
        return self.texts[self.ids[task]] if task in self.ids else None

    def added(self) -> list[int]:
        """The ids of tokens that are found in a text before any others."""
        whole = (Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)
        return [at for at, kind in enumerate(self.kinds) if kind in whole]

    def without_added(self, ids: Iterable[int]) -> "TokenList":
        """A copy with these as ordinary tokens."""
        kinds = list(self.kinds)
        for at in ids:
            kinds[at] = Kind.NORMAL
        return replace(self, kinds=kinds)


def read_tokens(metadata: Metadata, defaults: Defaults) -> TokenList:
    """Read the tokens; raises ValueError for an invalid vocabulary."""
    found = texts(metadata, f"{PREFIX}tokens")
    if not found:
        raise ValueError(f"{PREFIX}tokens has no tokens")
    # An empty text can't be found in another; llama.cpp uses the same replacement.
    named = [token or f"[EMPTY_{at}]" for at, token in enumerate(found)]
    ids = _ids(metadata, len(named))
    kinds = _kinds(metadata, named, ids)
    whole = {task: at for task, at in defaults.ids.items() if at < len(named) and kinds[at] != Kind.NORMAL}
    ids = {**whole, **ids}
    scores = real_numbers(metadata, f"{PREFIX}scores") or []
    if scores and len(scores) < len(named):
        raise ValueError(f"{PREFIX}scores has {len(scores):,} numbers for {len(named):,} tokens")
    size = _without_filling(named, kinds, ids)
    _require_unique(named[:size])
    adds = {name: flag(metadata, f"{PREFIX}add_{name}_token") for name in ("bos", "eos")}
    return TokenList(
        named[:size],
        kinds[:size],
        scores[:size],
        ids,
        adds_bos=defaults.adds_bos if adds["bos"] is None else adds["bos"],
        adds_eos=defaults.adds_eos if adds["eos"] is None else adds["eos"],
    )


def _ids(metadata: Metadata, size: int) -> dict[str, int]:
    ids: dict[str, int] = {}
    for task, name in _IDS.items():
        key = f"{PREFIX}{name}_token_id"
        if (value := whole_number(metadata, key)) is None:
            continue
        if not 0 <= value < size:
            raise ValueError(f"{key} is {value:,}, and the ids of its tokens go from 0 to {size - 1:,}")
        ids[task] = value
    return ids


def _kinds(metadata: Metadata, named: list[str], ids: Mapping[str, int]) -> list[Kind]:
    key = f"{PREFIX}token_type"
    numbers = whole_numbers(metadata, key)
    if numbers is None:
        kinds = [Kind.BYTE if _BYTE.fullmatch(token) else Kind.NORMAL for token in named]
    else:
        if len(numbers) < len(named):
            raise ValueError(f"{key} has {len(numbers):,} numbers for {len(named):,} tokens")
        if unknown := set(numbers) - _KINDS.keys():
            raise ValueError(f"{key} has {shown(min(unknown))}, which is no type of a token")
        kinds = [_KINDS[number] for number in numbers[: len(named)]]
    # Tokens that begin or end a text are never part of one, whatever a converter thought.
    for task in ("bos", "eos", "eot", "eom"):
        if task in ids and kinds[ids[task]] in (Kind.NORMAL, Kind.UNUSED):
            kinds[ids[task]] = Kind.CONTROL
    return kinds


def _without_filling(named: list[str], kinds: list[Kind], ids: Mapping[str, int]) -> int:
    """The number of tokens without the padding at the end."""
    size = len(named)
    least = max(ids.values(), default=-1) + 1
    while size > least and kinds[size - 1] == Kind.UNUSED and _FILLING.fullmatch(named[size - 1]):
        size -= 1
    return size


def _require_unique(named: list[str]) -> None:
    if len(set(named)) == len(named):
        return
    seen: dict[str, int] = {}
    for at, token in enumerate(named):
        if token in seen:
            raise ValueError(f"{PREFIX}tokens has {shown(token)} twice, with the ids {seen[token]:,} and {at:,}")
        seen[token] = at


# --- ends of an answer -----------------------------------------------------------------------------------------------
# A GGUF file names three at most (`eos`, `eot`, `eom`); the list of generation_config.json is lost in conversion. So
# tokens also count if their names mean an end in every family: those that llama.cpp takes for ends, except the ones for
# infilling code.

_NAMES = frozenset(
    (
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
        *("<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"),
        *("<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["),
    )
)
_MARKUP = "</s>"  # in Gemma's vocabularies the end of crossed-out text
# If a vocabulary has these tokens, that one ends a thought.
_NO_ENDS = {("<|return|>", "<|call|>"): "<|end|>", ("<|calls|>", "<|flush|>"): "<|end|>"}


def end_token_ids(tokens: TokenList) -> list[int]:
    """The ids as in generation_config.json, the file's own eos first."""
    named = [tokens.ids[task] for task in ("eos", "eot", "eom") if task in tokens.ids]
    return list(dict.fromkeys([*named, *_by_their_names(tokens)]))


def _by_their_names(tokens: TokenList) -> list[int]:
    added = {tokens.texts[at]: at for at in tokens.added()}
    names = set(_NAMES)
    if _MARKUP in added and tokens.kinds[added[_MARKUP]] == Kind.CONTROL:
        names.add(_MARKUP)
    names -= {end for others, end in _NO_ENDS.items() if all(other in added for other in others)}
    return sorted(at for text, at in added.items() if text in names)
