"""Pocket's tokenizer: a byte-level BPE learnt from its own training text, with Qwen3's special tokens.

Digits stand singly, so that sums can be learnt; most random words are left out of what it learns from, so that its
merges are words worth having.
"""

import json
import re
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ..text.example import LETTER_GAP, Example, rendered_answer, rendered_prompt
from ..text.mixture import Mixture, training

VOCABULARY = 2048
# In the order of their ids; only the first three are hidden from readers of the text.
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
# Qwen's pieces of text: words with the space before them, single digits, runs of punctuation, line ends.
_PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKED = re.compile("|".join(map(re.escape, (*SPECIAL, *MARKS))))
_MADE_UP = ("copying", "counting", "reversing", "refusals")


def learnt_tokenizer(
    seed: int, examples: int = 30_000, vocabulary: int = VOCABULARY, mixture: Mixture | None = None
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[*SPECIAL, *MARKS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_text(seed, examples, mixture), trainer)
    return _with_visible_marks(tokenizer)


def _with_visible_marks(tokenizer: Tokenizer) -> Tokenizer:
    """Make thinking and calls added tokens, but not special ones, so that decoding shows them, as in Qwen's."""
    state = json.loads(tokenizer.to_str())
    for added in state["added_tokens"]:
        added["special"] = added["content"] in SPECIAL
    return Tokenizer.from_str(json.dumps(state, ensure_ascii=False))


def _text(seed: int, examples: int, mixture: Mixture | None) -> Iterator[str]:
    for number, example in enumerate(training(f"tokenizer {seed}", mixture)):
        if number == examples:
            return
        if example.kind not in _MADE_UP or number % 20 == 0:
            text = rendered_prompt(example) + rendered_answer(example).replace(LETTER_GAP, "")
            # Marks are tokens of their own: what stands beside one must not be learnt with a part of it.
            yield from _MARKED.split(text)


def prompt_ids(tokenizer: Tokenizer, example: Example) -> list[int]:
    return tokenizer.encode(rendered_prompt(example), add_special_tokens=False).ids


def answer_ids(tokenizer: Tokenizer, example: Example) -> list[int]:
    pieces = rendered_answer(example).split(LETTER_GAP)
    return [token for piece in pieces for token in tokenizer.encode(piece, add_special_tokens=False).ids]
