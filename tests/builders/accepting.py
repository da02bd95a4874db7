"""Asks a compiled grammar whether it accepts a text, byte by byte: no tokenizer, and so no tokenizer's gaps."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from penstock.engine.grammar.matcher import Matcher, Vocabulary
from penstock.frontend.structured import grammar_of
from penstock.protocol.parameters.guided import GuidedDecodingParams

END = 256
_MOST_PIECES = 600  # of JSON, over all orders that are tried


@cache
def byte_vocabulary() -> Vocabulary:
    """Tokens of one byte each."""
    alphabet = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    with TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        return Vocabulary(Path(folder), END + 1)


def ids(text: str) -> list[int]:
    return byte_vocabulary().tokens.tokenize_bytes(text.encode("utf-8", "surrogatepass"))


def matcher(**form) -> Matcher:
    """Compiled in this process: only for grammars that mean well."""
    return Matcher.compiled(grammar_of(GuidedDecodingParams(**form)), byte_vocabulary())


def accepts(compiled: Matcher, text: str) -> bool:
    copy = compiled.fork()
    return copy.take(ids(text)) and copy.is_accepting


def accepts_value(compiled: Matcher, value: Any) -> bool | None:
    """Whether an answer may be this value, with its properties in some order; None: there are too many to be tried."""
    left = iter(range(_MOST_PIECES))
    try:
        return any(state.is_accepting for state in _after(compiled.fork(), value, left))
    except StopIteration:
        return None


def _after(state: Matcher, value: Any, left: Iterator[int]) -> list[Matcher]:
    """Where the grammar may be once the value has been written."""
    if isinstance(value, dict):
        return [end for begun in _written(state, "{", left) for end in _after_members(begun, value, left, "")]
    if not isinstance(value, list):
        return _written(state, json.dumps(value, ensure_ascii=False), left)
    states = _written(state, "[", left)
    for number, item in enumerate(value):
        begun = [each for state in states for each in _written(state, "," if number else "", left)]
        states = [end for state in begun for end in _after(state, item, left)]
    return [end for state in states for end in _written(state, "]", left)]


def _after_members(state: Matcher, members: dict[str, Any], left: Iterator[int], comma: str) -> list[Matcher]:
    if not members:
        return _written(state, "}", left)
    found: list[Matcher] = []
    for name, value in members.items():
        rest = {other: members[other] for other in members if other != name}
        for named in _written(state, f"{comma}{json.dumps(name, ensure_ascii=False)}:", left):
            for behind in _after(named, value, left):
                found += _after_members(behind, rest, left, ",")
    return found


def _written(state: Matcher, text: str, left: Iterator[int]) -> list[Matcher]:
    next(left)
    copy = state.fork()
    return [copy] if not text or copy.take(ids(text)) else []
