"""A receipt of vectors, scores, classes or decisions: what was computed, of which prompts, with which model.

It has what a receipt of a text has (`receipt.py`), but instead of tokens a digest of the bits of each prompt's
numbers. One receipt covers all prompts of a body. Whoever has the model computes the prompts again and compares.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy
from msgspec.structs import replace

from ...protocol.errors import RequestError
from ...protocol.files.formats import RECEIPT
from ...protocol.messages import Prompt
from ...protocol.parameters.pooling import PoolingParams
from .written import (
    DAMAGED,
    MOST_BESIDE_IDS,
    as_text,
    converted,
    id_bytes,
    packed_in,
    planes,
    unpacked_as,
    unpacked_ids,
)

if TYPE_CHECKING:
    from ..models.facts import ModelFacts

PREFIX = f"pn{RECEIPT.version}_"
_DIGEST_BYTES = 16
# Packed, with ids: what can be read again.
_MOST_BYTES = 8 << 20
_TOO_LONG = "receipt: this request's prompts and parameters are too long for one; ask in several requests."


class ClaimedNumbers(msgspec.Struct, array_like=True, frozen=True):
    """One prompt, and the digest of its numbers."""

    token_ids: bytes  # by planes, as `packed_ids` packs them
    digest: bytes
    params: int = 0  # index of its parameters
    second_text: int = 0  # of a pair of texts, where the second one begins

    @property
    def ids(self) -> list[int]:
        return unpacked_ids(self.token_ids)


class DecidedOption(msgspec.Struct, array_like=True, frozen=True):
    value: str | bool | int
    words: str
    spellings: list[list[int]]


class DecidedQuestion(msgspec.Struct, array_like=True, frozen=True):
    """A question, by whose labels the prompts' log-probabilities become an answer."""

    type: str
    name: str | None
    words: str
    options: list[DecidedOption]


class NumbersView(msgspec.Struct, array_like=True, frozen=True):
    """How a body shows the numbers, as far as it doesn't show that itself."""

    pairs: list[tuple[int, int]] = []  # scores are cosines of these prompts' vectors
    most_results: int = 0  # of a ranking; 0: all
    document_tokens: int = 0  # to which documents were cut first; 0: they weren't
    questions: list[DecidedQuestion] = []


_WHOLE = NumbersView()


class NumbersReceipt(msgspec.Struct, array_like=True, frozen=True):
    media: ClassVar[tuple[bytes, ...]] = ()  # receipts of texts may have some

    facts: dict[str, str]  # of the model, by words for people
    params: list[dict[str, Any]]  # those that aren't at their defaults; prompts may share them
    prompts: list[ClaimedNumbers]
    lora_name: str | None = None
    adapter: str | None = None  # the digest of its files
    view: NumbersView = _WHOLE

    def text(self) -> str:
        return as_text(PREFIX, self)

    @classmethod
    def read(cls, text: str) -> "NumbersReceipt":
        """Raises `RequestError` for a text that is no whole receipt."""
        import zlib  # few programs read one

        receipt = unpacked_as(cls, packed_in(PREFIX, text), zlib.decompressobj(), _bytes_beside_ids)
        for prompt in receipt.prompts:
            if len(prompt.token_ids) % 4 or not 0 <= prompt.params < len(receipt.params) or prompt.second_text < 0:
                raise RequestError(f"{DAMAGED}: a prompt is cut off, or has no parameters")
        if not receipt.prompts:
            raise RequestError(f"{DAMAGED}: it has no prompts")
        return receipt

    @property
    def pooling(self) -> list[PoolingParams]:
        """The parameters, with which numbers get a receipt again; raises `RequestError` if they are invalid."""
        return [converted({**each, "receipt": True}, PoolingParams) for each in self.params]


class _Parts(msgspec.Struct, array_like=True):
    facts: msgspec.Raw
    params: msgspec.Raw
    prompts: msgspec.Raw


def _bytes_beside_ids(unpacked: bytes) -> int:
    parts = msgspec.msgpack.decode(unpacked, type=_Parts)
    return len(unpacked) - id_bytes(parts.prompts, "prompts")


@dataclass(frozen=True, slots=True)
class NumbersReceiptDraft:
    """What a receipt has before there are numbers."""

    receipt: NumbersReceipt

    def text(self, data: numpy.ndarray) -> str:
        """The receipt of these numbers."""
        [prompt] = self.receipt.prompts
        return replace(self.receipt, prompts=[replace(prompt, digest=digest_of(data))]).text()


def begun(facts: "ModelFacts", prompt: Prompt, params: PoolingParams, second_text: int) -> NumbersReceiptDraft:
    """Begin a prompt's receipt. The model's first one waits until its files are digested."""
    claimed = ClaimedNumbers(planes(prompt.token_ids), b"", 0, second_text)
    lora_name = prompt.params.lora_name
    receipt = NumbersReceipt(facts.of_model(), [_given(params)], [claimed], lora_name, facts.of_adapter(lora_name))
    check_size(len(msgspec.msgpack.encode(receipt)), len(claimed.token_ids))
    return NumbersReceiptDraft(receipt)


def check_size(num_bytes: int, id_bytes: int) -> None:
    """Refuse what could not be read again."""
    if num_bytes > _MOST_BYTES or num_bytes - id_bytes > MOST_BESIDE_IDS:
        raise RequestError(_TOO_LONG)


def _given(params: PoolingParams) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(params).items() if name != "receipt"}


def digest_of(data: numpy.ndarray) -> bytes:
    """A digest of the bits of float32 numbers, and of their shape."""
    digest = blake2b(repr(data.shape).encode(), digest_size=_DIGEST_BYTES, person=b"penstock numbers")
    digest.update(numpy.ascontiguousarray(data, "<f4").tobytes())
    return digest.digest()


def joined(texts: Sequence[str], view: NumbersView = _WHOLE) -> str:
    """One receipt of several of the same model; `pairs` of the view count all their prompts."""
    receipts = [NumbersReceipt.read(text) for text in texts]
    params: dict[bytes, int] = {}
    prompts: list[ClaimedNumbers] = []
    given: list[dict[str, Any]] = []
    for receipt in receipts:
        places = []
        for each in receipt.params:
            if (key := msgspec.msgpack.encode(each)) not in params:
                params[key] = len(given)
                given.append(each)
            places.append(params[key])
        prompts += [replace(prompt, params=places[prompt.params]) for prompt in receipt.prompts]
    whole = replace(receipts[0], params=given, prompts=prompts, view=view)
    check_size(len(msgspec.msgpack.encode(whole)), sum(len(prompt.token_ids) for prompt in prompts))
    return whole.text()


def receipt_of(outputs: Sequence[Any], view: Callable[[], NumbersView] = lambda: _WHOLE) -> str | None:
    """One receipt of all these outputs; None unless each has one."""
    texts = [output.receipt for output in outputs]
    return joined(texts, view()) if texts and all(text is not None for text in texts) else None
