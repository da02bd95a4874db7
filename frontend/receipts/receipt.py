"""A receipt: one string from which anybody who has the model can check that it gave an answer.

It has the request as the model got it (prompt ids, parameters, seed, what its text is parsed by), the tokens that all
samples have said, and the facts about model and kernels that their bits depend on. What an answer is worth is what the
model draws.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ...protocol.errors import RequestError
from ...protocol.files.formats import RECEIPT
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.beams import BeamSearchParams
from ...protocol.parameters.sampling import SamplingParams
from .written import DAMAGED, as_text, converted, id_bytes, packed_ids, packed_in, unpacked_as, unpacked_ids

PREFIX = f"pr{RECEIPT.version}_"
SEPARATOR = "."  # between the receipts of a body that answers several prompts
# These facts may differ: whether the answer then differs is what is to be found out.
VERSIONS = ("Penstock's version", "version of the kernels")
# And these limits, which only refuse requests, or are in the parameters.
MAX_LENGTH = "max_model_len"
_LIMITS = (MAX_LENGTH, "option limit_", "option enable_logprob", "option max_logprobs")


class View(msgspec.Struct, array_like=True, frozen=True):
    """How a body shows the answer."""

    named: str | None = None  # the function whose arguments the whole answer is
    is_call: bool = False  # the whole answer is one call in JSON
    hides_thoughts: bool = False


PLAIN = View()


class ClaimedSample(msgspec.Struct, array_like=True, frozen=True):
    token_ids: bytes  # as `packed_ids` packs them
    finish_reason: str | None
    stop_reason: int | str | None

    @property
    def ids(self) -> list[int]:
        return unpacked_ids(self.token_ids)


class Receipt(msgspec.Struct, array_like=True, frozen=True):
    facts: dict[str, str]  # of the model, by words for people
    params: dict[str, Any]  # those that aren't at their defaults, with the seed
    prompt: bytes  # its ids, packed
    samples: list[ClaimedSample]
    adapter: str | None = None  # the digest of its files
    is_chat: bool = False
    tools: list[Any] = []
    end: str = ""  # of the prompt's text, where the template may have begun a thought
    beams: dict[str, Any] | None = None
    media: list[bytes] = []  # digests
    view: View = PLAIN

    @property
    def prompt_ids(self) -> list[int]:
        return unpacked_ids(self.prompt)

    @property
    def sampling(self) -> SamplingParams:
        """The parameters; raises `RequestError` if they are invalid."""
        return converted(self.params, SamplingParams, strict=False)

    @property
    def beam_search(self) -> BeamSearchParams | None:
        return None if self.beams is None else converted(self.beams, BeamSearchParams, strict=False)

    def text(self) -> str:
        return as_text(PREFIX, self)

    @classmethod
    def read(cls, text: str) -> "Receipt":
        """Raises `RequestError` for a text that is no whole receipt."""
        return cls.unpacked(packed_in(PREFIX, text), zlib.decompressobj())

    @classmethod
    def unpacked(cls, packed: bytes, unpacker: "zlib._Decompress") -> "Receipt":
        """Raises `RequestError` unless a whole receipt was packed, in the one way in which it is written."""
        receipt = unpacked_as(cls, packed, unpacker, _bytes_beside_ids)
        if any(len(ids) % 4 for ids in (receipt.prompt, *(sample.token_ids for sample in receipt.samples))):
            raise RequestError(f"{DAMAGED}: its tokens are cut off")
        return receipt


@dataclass(frozen=True, slots=True)
class ClaimedPrompt:
    """A prompt with its media, which its receipt has only the digests of."""

    prompt: Any  # of any kind that a window takes
    receipt: Receipt


@dataclass(slots=True)
class ReceiptDraft:
    """What a receipt has before there is an answer; collects what the samples say."""

    receipt: Receipt
    said: list[list[int]]

    @classmethod
    def of(cls, receipt: Receipt, num_samples: int) -> "ReceiptDraft":
        return cls(receipt, [[] for _ in range(num_samples)])

    def take(self, output: RequestOutput) -> None:
        """Add new output; the last one gets the receipt."""
        if (receipt := self.after(output)) is not None:
            output.receipt = receipt.text()

    def after(self, output: RequestOutput) -> Receipt | None:
        """Add new output; returns the receipt once that was the last."""
        for said, answer in zip(self.said, output.outputs, strict=True):
            said += answer.token_ids
        if not output.finished or output.error_code != 200:
            return None
        samples = [
            ClaimedSample(packed_ids(said), answer.finish_reason, answer.stop_reason)
            for said, answer in zip(self.said, output.outputs, strict=True)
        ]
        return replace(self.receipt, samples=samples)


def with_view(text: str, view: View) -> str:
    """The receipts of a body that shows the answers in a way of its own."""
    if view == PLAIN:
        return text
    receipts = map(Receipt.read, text.split(SEPARATOR))
    return SEPARATOR.join(replace(each, view=view).text() for each in receipts)


class ReceiptOfModel(Protocol):
    @property
    def facts(self) -> dict[str, str]: ...
    @property
    def adapter(self) -> str | None: ...


def unlike(receipt: ReceiptOfModel, facts: Mapping[str, str], adapter: str | None) -> str | None:
    """Why a model with these facts can't judge a receipt; None if it can."""
    if receipt.adapter != adapter:
        return f"its LoRA adapter is {_shown(receipt.adapter)}, and here that name has {_shown(adapter)}"
    names = [*facts, *(name for name in receipt.facts if name not in facts)]
    may_differ = (*VERSIONS, *_LIMITS)
    found = [name for name in names if receipt.facts.get(name) != facts.get(name) and not name.startswith(may_differ)]
    phrases = (f"{name} was {_shown(receipt.facts.get(name))} and is {_shown(facts.get(name))}" for name in found)
    return "; ".join(phrases) or None


def _shown(value: str | None) -> str:
    return "none" if not value else f"{value[:12]}…" if len(value) >= 32 else value


class _Parts(msgspec.Struct, array_like=True):
    """A receipt's fields up to its samples, as they lie there."""

    facts: msgspec.Raw
    params: msgspec.Raw
    prompt: msgspec.Raw
    samples: msgspec.Raw


def _bytes_beside_ids(unpacked: bytes) -> int:
    """Bytes of a receipt but those of its ids. No objects are made of them."""
    parts = msgspec.msgpack.decode(unpacked, type=_Parts)
    return len(unpacked) - len(parts.prompt) - id_bytes(parts.samples, "answers")
