"""Which tokens end an answer: those that the file names, and those whose names say so in every family.

A GGUF file names three at most (`eos`, `eot`, `eom`); the list of generation_config.json is lost on the way. The names
are those that llama.cpp takes for ends, without the ones that belong to the middle of code.
"""

from ..vocabulary.sentencepiece_model import Kind
from .token_list import TokenList

_NAMES = frozenset(
    (
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
        *("<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"),
        *("<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["),
    )
)
_MARKUP = "</s>"  # in Gemma's vocabularies the end of crossed-out text
# Beside these tokens, that one ends a thought.
_NO_ENDS = {("<|return|>", "<|call|>"): "<|end|>", ("<|calls|>", "<|flush|>"): "<|end|>"}


def end_token_ids(tokens: TokenList) -> list[int]:
    """As generation_config.json has them, the file's own eos first."""
    named = [tokens.ids[task] for task in ("eos", "eot", "eom") if task in tokens.ids]
    return list(dict.fromkeys([*named, *_by_their_names(tokens)]))


def _by_their_names(tokens: TokenList) -> list[int]:
    added = {tokens.texts[at]: at for at in tokens.added()}
    names = set(_NAMES)
    if _MARKUP in added and tokens.kinds[added[_MARKUP]] == Kind.CONTROL:
        names.add(_MARKUP)
    names -= {end for others, end in _NO_ENDS.items() if all(other in added for other in others)}
    return sorted(at for text, at in added.items() if text in names)
