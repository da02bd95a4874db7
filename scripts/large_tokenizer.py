"""A byte-level tokenizer as large as those of today's models, made up: runs of letters, digits, spaces and marks.

Benchmarks and tests of grammars need its tokens to spell something.
"""

import json
import random
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SIZE = 151_936
_NUM_SPECIAL = 26
END = SIZE - 1
_LONGEST = 10


def write_large_tokenizer(folder: Path, size: int = SIZE) -> None:
    """Writes tokenizer.json; the same tokens every time. The last one ends an answer."""
    words, merges = _words(size - _NUM_SPECIAL)
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = [f"<|special {number}|>" for number in range(_NUM_SPECIAL)]
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": names[-1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _words(size: int) -> tuple[list[str], list[tuple[str, str]]]:
    draw = random.Random(0)
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    known, merges = set(words), []
    # Letters and digits oftener than marks; a space only at a word's beginning.
    parts = [word for word in words if word.isascii() and word.isalnum()] * 3 + ["Ġ"] * 20
    parts += [word for word in words if word.isascii() and not word.isalnum()]
    while len(words) < size:
        left, right = draw.choice(parts), draw.choice(parts)
        joined = left + right
        if len(joined) <= _LONGEST and "Ġ" not in right and joined not in known:
            words.append(joined)
            known.add(joined)
            merges.append((left, right))
            parts.append(joined)
    return words, merges
