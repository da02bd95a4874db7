"""Asks a compiled grammar whether it accepts a text, byte by byte: no tokenizer, and so no tokenizer's gaps."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from penstock.engine.grammar.matcher import Matcher, Vocabulary
from penstock.frontend.structured import grammar_of
from penstock.protocol.guided import GuidedDecodingParams

END = 256


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
