"""Reads an answer of an earlier run from its line: the keys that find it, and what its samples have said.

The line has one of the forms that the commands and the server write: the record of a prompt with its outputs,
`RequestOutput.to_dict`, a line of OpenAI's output files, or the bare body of one. Tokens are taken from the line, its
receipt or the journal's record. If none of them has tokens, there is only text.
"""

import codecs
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Any

import msgspec

from ...protocol.errors import RequestError
from ...protocol.wire import column, values
from ..receipts.receipt import SEPARATOR, Receipt
from ..requests.prompts import CHARACTERS_PER_TOKEN
from ..rows.lines import LONGEST_LINE

# What a sample has said: its token ids, or the pieces of its text if their tokens aren't known.
Spoken = list[int] | list[str]

_DECODER = msgspec.json.Decoder()


class EarlierAnswer:
    """An answer in its line, which is read only as far as it is asked for."""

    __slots__ = ("_body", "_line", "_packed", "_prompt_keys")

    def __init__(
        self, line: Mapping[str, Any], body: Mapping[str, Any], packed: Sequence[bytes], prompt_keys: Sequence[int]
    ) -> None:
        self._line = line
        self._body = body
        self._packed = packed  # ids of its samples, from a journal
        self._prompt_keys = prompt_keys  # likewise

    @classmethod
    def of(cls, line: bytes, packed: Sequence[bytes] = (), prompt_keys: Sequence[int] = ()) -> "EarlierAnswer | None":
        """Read a line; None if it is damaged or too long, or has no answer."""
        if len(line) > LONGEST_LINE:
            return None
        try:
            # Files that begin with a byte order mark may have been concatenated.
            found = _DECODER.decode(line.removeprefix(codecs.BOM_UTF8))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        body = _mapping(_mapping(found.get("response")).get("body")) if "custom_id" in found else found
        has_failed = body.get("error") or body.get("error_code", 200) != 200
        return cls(found, body, packed, prompt_keys) if _samples_of(body) and not has_failed else None

    @property
    def name(self) -> str | None:
        """The name of its line in the input."""
        name = self._line.get("custom_id", self._line.get("id") if "outputs" in self._line else None)
        return None if name is None else str(name)

    @property
    def keys(self) -> set[int]:
        return self.prompt_keys | (set() if self.name is None else {key_of_name(self.name)})

    @property
    def prompt_keys(self) -> set[int]:
        if not self.has_prompt_in_receipt:
            return set(self._prompt_keys) or keys_of_line(self._line)
        receipts = self._receipts()
        # A body with several has answers to several prompts.
        return keys_of_prompt(token_ids=receipts[0].prompt_ids) if len(receipts) == 1 else set()

    @property
    def has_prompt_in_receipt(self) -> bool:
        """Whether its prompt can stand in its receipt alone."""
        return "receipt" in self._body and not self._prompt_keys and not keys_of_line(self._line)

    def samples(self, num_samples: int, num_tokens: int) -> list[Spoken]:
        """Return what each of the first samples has said, read up to about as many tokens."""
        if self._packed:
            ids = ((packed, 4 * min(num_tokens, len(packed) // 4)) for packed in self._packed[:num_samples])
            return [list(values(packed[:length])) for packed, length in ids]
        if receipts := self._receipts():
            said = (sample for receipt in receipts for sample in receipt.samples)
            return [sample.ids[:num_tokens] for sample in islice(said, num_samples)]
        return [_spoken(_mapping(each), num_tokens) for each in _samples_of(self._body)[:num_samples]]

    def _receipts(self) -> list[Receipt]:
        text = self._body.get("receipt")
        if not isinstance(text, str) or _has_ids(self._body):
            return []
        try:
            return [Receipt.read(each) for each in text.split(SEPARATOR)]
        except RequestError:
            return []


def key_of_name(name: str) -> int:
    return _key(b"name", name.encode(errors="surrogatepass"))


def keys_of_line(line: Mapping[str, Any]) -> set[int]:
    """The keys of the prompt in a line, be it of an input or of answers."""
    prompt, ids, messages = (line.get(name) for name in ("prompt", "prompt_token_ids", "messages"))
    if isinstance(prompt, list):
        prompt, ids = None, prompt
    return keys_of_prompt(
        prompt if isinstance(prompt, str) else None,
        ids if isinstance(ids, list) else None,
        messages if isinstance(messages, list) else (),
    )


def keys_of_prompt(
    text: str | None = None, token_ids: Sequence[int] | None = None, messages: Sequence[Any] = ()
) -> set[int]:
    """Return the keys of a prompt. The key of a conversation doesn't depend on its system prompt, and that of a single
    question is the key of its text."""
    keys = set()
    if text is not None:
        keys.add(_key(b"text", text.encode(errors="surrogatepass")))
    if token_ids is not None:
        with suppress(Exception):  # of what is no id, or of a caller's own list, which may raise anything
            keys.add(_key(b"ids", column(token_ids)))
    turns = list(_turns(messages))
    if len(turns) == 1 and turns[0][0] == "user":
        keys |= keys_of_prompt(turns[0][1])
    elif turns:
        keys.add(_key(b"talk", repr(turns).encode(errors="surrogatepass")))
    return keys


def _turns(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the role and the text of each message, without system messages."""
    for message in messages:
        role = _mapping(message).get("role")
        if role not in ("system", "developer"):
            yield str(role), _text_of(_mapping(message).get("content"))


def _text_of(content: Any) -> str:
    """Join the text of a message's parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else []
    texts = (part if isinstance(part, str) else _mapping(part).get("text") for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def _key(kind: bytes, content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8, person=kind).digest(), "little")


# --- what a sample has said -------------------------------------------------------------------------------------------


def _samples_of(body: Mapping[str, Any]) -> list[Any]:
    """Find the samples in a record, or in a body of one of the server's endpoints; a response has one."""
    for name in ("outputs", "choices"):
        if isinstance(samples := body.get(name), list):
            return samples
    return [{"items": body["output"]}] if isinstance(body.get("output"), list) else []


def _has_ids(body: Mapping[str, Any]) -> bool:
    return any("token_ids" in _mapping(each) for each in _samples_of(body))


def _spoken(sample: Mapping[str, Any], num_tokens: int) -> Spoken:
    ids = sample.get("token_ids")
    if isinstance(ids, list) and all(type(token) is int for token in ids[:num_tokens]):
        return ids[:num_tokens]
    said: list[str] = []
    left = CHARACTERS_PER_TOKEN * num_tokens
    for piece in (piece for part in _parts(sample) for piece in _pieces(part)):
        if isinstance(piece, str) and piece[:left]:
            said.append(piece[:left])
            left -= len(said[-1])
    return said


def _parts(sample: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the parts of a sample that may have text, in the order in which they were said."""
    items = sample.get("items")
    if isinstance(items, list):
        return [part for item in map(_mapping, items) for part in (item, *_mappings(item.get("content")))]
    return [sample, _mapping(sample.get("message"))]


def _pieces(part: Mapping[str, Any]) -> Iterator[Any]:
    yield part.get("reasoning_content")
    yield part.get("reasoning")
    yield part.get("text")
    yield part.get("content")
    for called in (part, *(_mapping(call.get("function")) for call in _mappings(part.get("tool_calls")))):
        if "arguments" in called:
            yield called.get("name")
            yield called["arguments"]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
