"""What texts are made of, all of it found on this machine: Python's library, its reference and the packages' metadata.

The tokenizer is a byte-level BPE that `tokenizers` trains on the same files, as large as those of small models.
"""

import ast
import importlib.metadata
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LIBRARY = Path(os.__file__).parent
VOCABULARY = 32_000
# Letters with the mark before them, single digits, marks, line ends: as Qwen's tokenizers split.
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def function_of(file: str, name: str) -> tuple[str, str]:
    """A function's source with its decorators, and all of the file before it."""
    source = (LIBRARY / file).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
            return "".join(lines[first : node.end_lineno]), "".join(lines[:first])
    raise LookupError(f"{LIBRARY / file} has no function {name}: this Python's library differs, choose another.")


def topic(name: str) -> str:
    """The prose of a chapter of the language reference, a line each paragraph, with plain quotation marks."""
    from pydoc_data.topics import topics

    text = re.sub("[“”]", '"', re.sub("[‘’]", "'", topics[name]))
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n") if re.match(r"\n*[A-Z*][^=]{80}", each)]
    return "\n\n".join(paragraphs)


def metadata(package: str, fields: tuple[str, ...]) -> str:
    """Lines of a package's metadata, as its own file has them."""
    lines = (importlib.metadata.distribution(package).read_text("METADATA") or "").splitlines()
    return "\n".join(line for line in lines if line.partition(":")[0] in fields and len(line) < 160)


def field(package: str, name: str) -> str:
    return importlib.metadata.metadata(package).get(name, "")


def beginning(text: str, characters: int) -> str:
    """Whole paragraphs, up to about so many characters."""
    kept: list[str] = []
    for paragraph in text.split("\n\n"):
        if kept and sum(map(len, kept)) + len(paragraph) > characters:
            break
        kept.append(paragraph)
    return "\n\n".join(kept) + "\n"


def end_of(text: str, characters: int) -> str:
    """Whole lines at the end, at most so many characters."""
    return text[-characters:].split("\n", 1)[1]


def tokenizer(file: Path) -> "Tokenizer":
    """The texts' tokenizer, trained where the file isn't there yet."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    if not file.exists():
        bpe = Tokenizer(models.BPE())
        words = pre_tokenizers.Split(Regex(_WORDS), "isolated")
        bpe.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
        bpe.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
        bpe.train_from_iterator(_corpus(), trainer)
        bpe.save(str(file))
    return Tokenizer.from_file(str(file))


def _corpus() -> Iterator[str]:
    from pydoc_data.topics import topics

    for path in sorted(LIBRARY.glob("*.py")) + sorted(LIBRARY.glob("[a-s]*/*.py")):
        if "site-packages" not in path.parts and "test" not in path.parts:
            yield path.read_text(encoding="utf-8", errors="replace")
    yield from topics.values()
    yield from (each.read_text("METADATA") or "" for each in importlib.metadata.distributions())
