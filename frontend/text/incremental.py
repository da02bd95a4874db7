"""Decodes token ids to text as they arrive, with one decoder per sequence.

For nearly every tokenizer for text generation, decoding is a table from token id to bytes: byte-level ones, and those
that write spaces as `▁` and rare characters as bytes. `TokenBytes` is that table; a decoder then only joins bytes and
holds back an unfinished character. For the others (WordPiece and the like) the library decodes a window of the last
tokens at each step. The text continues the prompt, whose tail is the context.

Invalid UTF-8 becomes U+FFFD: one for each longest truncated character, and one for each byte that can't begin a
character, as the Unicode Standard recommends. The rule is the same for whole texts and for streams. (The library's own
rule for byte fallback, one for every byte of a run with an invalid one, would take back characters that a stream has
already shown.)
"""

import codecs
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import tokenizers

from ...protocol.errors import RequestError
from .byte_level import BYTE_OF_CHARACTER

_REPLACEMENT = "\ufffd"
# A character has four bytes at most; more tokens than this without an end of one are broken text, and shown as such.
_MOST_UNFINISHED = 8
# After this many tokens without text (ids without a token, say), later tokens can't tell whether there were any.
_MOST_SILENT = 32
# A decoder that strips this many spaces from a text's beginning leaves none.
ALL_SPACES = 1 << 20


class IncrementalDecoder(Protocol):
    """Decodes one sequence. The joined deltas don't depend on how its ids were cut into pieces."""

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that these ids complete."""

    def flush(self) -> str:
        """The text of an unfinished character at the end: U+FFFD."""


class Decoding:
    """One tokenizer's way from ids to text; makes the decoders of its sequences.

    The tokens `shown` are text even if special ones are skipped.
    """

    def __init__(self, backend: tokenizers.Tokenizer, shown: Collection[str] = ()) -> None:
        self.backend = backend
        added = backend.get_added_tokens_decoder()
        self.added = {token_id: token.content for token_id, token in added.items()}
        # The library decides: it may treat a token as special although the token's own flag says otherwise.
        special_ids = (token_id for token_id in added if not backend.decode([token_id]))
        self.special_ids = frozenset(token_id for token_id in special_ids if self.added[token_id] not in shown)
        steps = _steps(backend)
        self._reads_bytes = "ByteFallback" in [step["type"] for step in steps]
        rule = _byte_rule(steps)
        self._all_bytes = TokenBytes(backend, rule, frozenset()) if rule else None
        self._plain_bytes = TokenBytes(backend, rule, self.special_ids) if rule else None

    def decoder(
        self,
        context: Sequence[int] = (),
        *,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> IncrementalDecoder:
        """A decoder for text after `context`, the last tokens of the prompt."""
        table = self._plain_bytes if skip_special_tokens else self._all_bytes
        if table is not None:  # none of these tokenizers puts spaces between special tokens anyway
            return BytesDecoder(table, context)
        return WindowDecoder(self, context, skip_special_tokens, spaces_between_special_tokens)

    def text(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Decode all ids at once: the same text as a stream of them without a prompt."""
        if self._all_bytes is None and not self._reads_bytes:
            return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
        decoder = self.decoder(skip_special_tokens=skip_special_tokens)
        return decoder.feed(token_ids) + decoder.flush()

    def token(self, token_id: int) -> str:
        """Decode one token by itself, showing special ones; a part of a character is U+FFFD."""
        if self._all_bytes is not None:
            return self._all_bytes[token_id].decode("utf-8", "replace")
        with panics_as(RequestError, f"Token {token_id} has no text"):
            return self.backend.decode([token_id], skip_special_tokens=False)


# --- a table from id to bytes ----------------------------------------------------------------------------------------


class ByteRule(NamedTuple):
    """A tokenizer's decoder that works token by token, perhaps with another rule for a text's first token."""

    token: Callable[[str], bytes]
    first: Callable[[str], bytes]
    strips_all: bool = False  # if a token leaves no text, the next one also counts as the first


class TokenBytes(dict[int, bytes]):
    """Token id → its bytes, filled as ids occur. Ids without a token, and hidden ones, are empty."""

    def __init__(self, backend: tokenizers.Tokenizer, rule: ByteRule, hidden: Iterable[int]) -> None:
        super().__init__((token_id, b"") for token_id in hidden)
        self.backend = backend
        self.rule = rule

    def __missing__(self, token_id: int) -> bytes:
        token = self.backend.id_to_token(token_id)
        self[token_id] = found = b"" if token is None else self.rule.token(token)
        return found

    def first(self, token_id: int) -> bytes:
        """The bytes of a (non-empty) token that begins a text."""
        token = self.backend.id_to_token(token_id)
        return b"" if token is None else self.rule.first(token)


class BytesDecoder:
    """An `IncrementalDecoder` over a table: one join and one UTF-8 decode for any number of tokens."""

    __slots__ = ("_bytes_of", "_has_begun", "_has_context", "_table", "_utf8")

    def __init__(self, table: TokenBytes, context: Sequence[int]) -> None:
        self._table = table
        self._bytes_of = table.__getitem__
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        # The context's text belongs to the prompt; an unfinished character at its end stays in the decoder.
        self._has_context = bool(context) and bool(self._utf8.decode(self._joined(context)) or self._unfinished)
        self._has_begun = False

    def feed(self, token_ids: Iterable[int]) -> str:
        if not self._has_begun:
            return self._begin(iter(token_ids))
        return self._utf8.decode(self._joined(token_ids))

    def flush(self) -> str:
        return self._utf8.decode(b"", True) if self._has_begun else ""

    def _begin(self, token_ids: Iterable[int]) -> str:
        for token_id in token_ids:
            if piece := self._bytes_of(token_id):
                if not self._has_context:
                    piece = self._table.first(token_id)
                    if not piece and self._table.rule.strips_all:
                        continue
                self._has_begun = True
                # The bytes of a broken character at the prompt's end are shown only if the answer continues them.
                if self._unfinished and not 0x80 <= piece[0] < 0xC0:
                    self._utf8.reset()
                return self._utf8.decode(piece + self._joined(token_ids))
        return ""

    def _joined(self, token_ids: Iterable[int]) -> bytes:
        return b"".join(map(self._bytes_of, token_ids))

    @property
    def _unfinished(self) -> bytes:
        return self._utf8.getstate()[0]


def _steps(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    """The decoder as the library describes it; empty if the tokenizer has none."""
    if backend.decoder is None:
        return []
    state = json.loads(backend.decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]


def _byte_rule(steps: list[dict[str, Any]]) -> ByteRule | None:
    """The tokenizer's decoder as a `ByteRule`; None if it needs more than that."""
    if [step["type"] for step in steps] == ["ByteLevel"]:
        return ByteRule(_byte_level, _byte_level)
    rule = _Replacing()
    return rule.made() if steps and all(map(rule.takes, steps)) else None


class _Replacing:
    """The steps of a decoder that replaces parts of tokens, reads some as bytes, and strips the beginning of a text."""

    def __init__(self) -> None:
        self._replaced: list[tuple[str, str]] = []
        self._mark = ""  # removed from the beginning of the first token
        self._is_fused = False
        self._has_bytes = False
        self._most_stripped = 0  # spaces stripped from the beginning of a text: none, one or all

    def takes(self, step: dict[str, Any]) -> bool:
        """False for a step that isn't a function of single tokens."""
        match step:
            case {"type": "Fuse"}:
                self._is_fused = True
            case {"type": "Strip", "content": " ", "start": most, "stop": 0} if self._is_fused:
                self._most_stripped = most
                return bool(most == 1 or most >= ALL_SPACES)
            case _ if self._is_fused:
                return False
            case {"type": "ByteFallback"}:
                self._has_bytes = True
            case {"type": "Replace", "pattern": {"String": old}, "content": new}:
                self._replaced.append((old, new))
            case {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme}:
                self._mark = "" if scheme == "never" else mark
                self._replaced.append((mark, " "))
            case _:
                return False
        return True

    def made(self) -> ByteRule:
        return ByteRule(self._plain, self._first, self._most_stripped >= ALL_SPACES)

    def _plain(self, token: str) -> bytes:
        if self._has_bytes and (byte := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        for old, new in self._replaced:
            token = token.replace(old, new)
        return token.encode()

    def _first(self, token: str) -> bytes:
        found = self._plain(token.replace(self._mark, "") if self._mark else token)
        if self._most_stripped >= ALL_SPACES:
            return found.lstrip(b" ")
        return found.removeprefix(b" ") if self._most_stripped else found


def _byte_level(token: str) -> bytes:
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:  # an added token, written literally
        return token.encode()


_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


# --- any other tokenizer ---------------------------------------------------------------------------------------------


class WindowDecoder:
    """An `IncrementalDecoder` that decodes the last tokens again with each new one and returns the new text."""

    def __init__(
        self, decoding: Decoding, context: Sequence[int], skip_special_tokens: bool, spaces_between: bool
    ) -> None:
        self._decoding = decoding
        self._hidden = decoding.special_ids if skip_special_tokens else frozenset[int]()
        self._spaces_between = spaces_between
        self._ids = [token_id for token_id in context if token_id not in self._hidden]
        self._start = 0  # the window's first token
        self._read = len(self._ids)  # tokens whose text has been returned

    def feed(self, token_ids: Iterable[int]) -> str:
        return "".join([self._next(token_id) for token_id in token_ids if token_id not in self._hidden])

    def flush(self) -> str:
        text = self._text(self._ids)[len(self._text(self._ids[: self._read])) :]
        self._read = len(self._ids)
        return text

    def _next(self, token_id: int) -> str:
        added = self._decoding.added
        if not self._spaces_between and token_id in added and self._ids and self._ids[-1] in added:
            text = added[token_id]
            self._ids = [token_id]
            self._read = 1
            return text
        self._ids.append(token_id)
        before, now = self._text(self._ids[: self._read]), self._text(self._ids)
        is_unfinished = now.endswith(_REPLACEMENT) and len(self._ids) - self._read < _MOST_UNFINISHED
        if is_unfinished or len(now) <= len(before):
            if len(self._ids) - self._read == _MOST_SILENT:
                del self._ids[self._read :]
            return ""
        self._ids = self._ids[self._read :]
        self._read = len(self._ids)
        return now[len(before) :]

    def _text(self, token_ids: Sequence[int]) -> str:
        return self._decoding.backend.decode(token_ids, skip_special_tokens=False)


_PANIC = "PanicException"  # its module cannot be imported


@contextmanager
def panics_as(kind: type[Exception], what: str) -> Iterator[None]:
    """Raise an error that `what` could not be done, followed by the library's own message."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise kind(f"{what}: the tokenizers library failed ({error}).") from None
