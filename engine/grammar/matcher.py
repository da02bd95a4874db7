"""A grammar's state after some tokens: which tokens may follow, and which must. Only this file imports llguidance.

It is imported with the first grammar. The caller chooses the tokens that may end an answer.
"""

import json
import re
from pathlib import Path

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from ...protocol.files.model_file import read_model_text
from ...protocol.parameters.guided import Grammar
from ...protocol.wire import mask_bytes

# The most that a grammar may cost. Beyond that, its matcher enters the error state, which ends only its own request.
# Measured with these bounds: ambiguous grammars take up to 0.3 s for a mask and 0.15 s for a token.
MOST = LLParserLimits(
    initial_lexer_fuel=250_000,
    step_lexer_fuel=50_000,
    step_max_items=50_000,
    max_lexer_states=25_000,
    verbose_errors=False,
)
# The most that it may cost the engine's loop. Beyond that, `remote.py` follows the sequence. Measured with these
# bounds: 4 ms for the most expensive step of ambiguous grammars, 1.5 ms of ordinary ones with a vocabulary of 60,000;
# of those, only objects of more than sixty optional properties need more.
IN_THE_LOOP = LLParserLimits(
    initial_lexer_fuel=250_000,
    step_lexer_fuel=20_000,
    step_max_items=10_000,
    max_items_in_row=250,
    max_lexer_states=25_000,
    verbose_errors=False,
)


class Vocabulary:
    """The model's tokens as bytes."""

    def __init__(self, tokenizer_folder: Path, size: int) -> None:
        text = read_model_text(tokenizer_folder / "tokenizer.json")
        try:
            self.tokens = _tokens(text, size)
        except ValueError:
            self.tokens = _tokens(_in_known_pieces(text), size)
        self.size = size


def _tokens(text: str, size: int) -> LLTokenizer:
    try:
        return LLTokenizer(text, n_vocab=size)
    except ValueError:  # the tokenizer has more tokens than the model; leave out the added ones
        described = json.loads(text)
        described["added_tokens"] = [token for token in described.get("added_tokens") or [] if token["id"] < size]
        return LLTokenizer(json.dumps(described, ensure_ascii=False))


def _in_known_pieces(text: str) -> str:
    """Describe pieces that write a space as ▁ in the library's own way."""
    described = json.loads(text)
    if (described.get("decoder") or {}).get("type") == "Metaspace":
        space = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
        described["decoder"] = {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return json.dumps(described, ensure_ascii=False)


class Matcher:
    """A grammar's state; `fork()` copies it for another sequence."""

    __slots__ = ("_matcher", "_tokens", "_size", "_num_bytes")

    def __init__(self, matcher: LLMatcher, tokens: LLTokenizer, size: int) -> None:
        self._matcher = matcher
        self._tokens = tokens
        self._size = size
        self._num_bytes = mask_bytes(size)

    @classmethod
    def compiled(cls, grammar: Grammar, vocabulary: Vocabulary, limits: LLParserLimits = MOST) -> "Matcher":
        found = LLMatcher(vocabulary.tokens, source(grammar), log_level=0, limits=limits)
        return cls(found, vocabulary.tokens, vocabulary.size)

    def fork(self) -> "Matcher":
        return Matcher(self._matcher.deep_copy(), self._tokens, self._size)

    @property
    def error(self) -> str | None:
        """Why the matcher can't continue, in the library's words."""
        return as_sentence(self._matcher.get_error()) if self._matcher.is_error() else None

    @property
    def is_accepting(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()

    @property
    def is_complete(self) -> bool:
        """Whether the answer must end here."""
        return self._matcher.is_stopped()

    def take(self, tokens: list[int]) -> bool:
        return self._matcher.consume_tokens(tokens)

    def certain(self) -> list[int]:
        """The tokens that must follow, as the tokenizer would encode them, up to one that the model lacks."""
        tokens = self._matcher.compute_ff_tokens()
        return tokens[: next((index for index, token in enumerate(tokens) if token >= self._size), len(tokens))]

    def mask(self, endings: list[int]) -> bytearray:
        """A bit for each token that may follow, including `endings` if the answer may end here."""
        bits = bytearray(self._matcher.compute_bitmask()[: self._num_bytes])
        bits.extend(bytes(self._num_bytes - len(bits)))
        # The vocabulary's own end tokens don't count: each request has its own.
        for token in self._tokens.eos_tokens:
            if token >> 3 < len(bits):
                bits[token >> 3] &= ~(1 << (token & 7))
        if self.is_accepting:
            for token in endings:
                bits[token >> 3] |= 1 << (token & 7)
        return bits


def source(grammar: Grammar) -> str:
    """The grammar in the library's own format."""
    match grammar.kind:
        case "json":
            return json.dumps({"grammars": [{"json_schema": json.loads(grammar.text)}]})
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case _:
            return LLMatcher.grammar_from_lark(grammar.text)


def tried(grammar: Grammar) -> str | None:
    """A grammar's fault in the library's words, or None. This may hang or end the process: see `trial.py`."""
    if grammar.kind == "call":
        grammar = Grammar("lark", _TOKEN.sub("<[256]>", grammar.text))
    matcher = LLMatcher(_bytes(), source(grammar), log_level=0, limits=MOST)
    matcher.compute_bitmask()
    return as_sentence(matcher.get_error()) if matcher.is_error() else None


_TOKEN = re.compile(r"<\[\d+\]>")  # a token of the model's vocabulary
# The library's message for a regular expression, with the lines that point into it.
_WRONG_REGEX = re.compile(r"regex parse error:\n    (?P<regex>.*)\n.*\nerror: (?P<reason>.*)")
_UNKNOWN_FEATURE = re.compile(r'invalid regex (?P<regex>".*") \(in regex\): (?P<reason>.*?)(?:; \w+)? in regex /')
# Names of the library's states; it gives no other reason for them.
_STATES = {
    "NoExtension": "Nothing can be written that has this shape: after its beginning no token fits.",
    "TooComplex": "This shape has too many possibilities at once. Make it simpler.",
}


def as_sentence(message: str) -> str:
    """The library's error message as a sentence, shortened and without its internal state."""
    for state, sentence in _STATES.items():
        if state in message.split(" ")[0]:
            return sentence
    if found := _WRONG_REGEX.search(message) or _UNKNOWN_FEATURE.search(message):
        message = f"The regular expression {found['regex']} can't be used: {found['reason']}."
    lines = re.split("<(?:backtrace|state|non-verbose)", message)[0].splitlines()
    words = "\n".join(line.rstrip() for line in lines if line.strip())  # keep the spaces that align carets
    return words if len(words) <= 400 else f"{words[:200]} … {words[-200:]}"


def _bytes() -> LLTokenizer:
    """A vocabulary of the 256 bytes and an end token."""
    return LLTokenizer(TokenizerWrapper(_Bytes()), slices=[])


class _Bytes:
    eos_token_id = 256
    bos_token_id = None
    tokens = [bytes([value]) for value in range(256)] + [b"<end>"]
    special_token_ids = [256]

    def __call__(self, text: bytes) -> list[int]:
        return list(text)
