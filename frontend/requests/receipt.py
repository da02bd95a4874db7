"""A receipt: one string from which anybody who has the model can check that it gave an answer.

It has the request as the model got it (prompt ids, parameters, seed, what its text is parsed by), the tokens that all
samples have said, and the facts about model and kernels that their bits depend on. The string is ASCII without spaces
or quotes. Its checksum only finds damage: whoever changes a receipt can make another one. What an answer is worth is
what the model draws.
"""

import base64
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from ...protocol.errors import RequestError
from ...protocol.files.formats import RECEIPT
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Prompt
from ...protocol.options.config import EngineConfig
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.beams import BeamSearchParams
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.wire import column, values
from .door_checks import MOST_BESIDE_IDS, check_receipt

if TYPE_CHECKING:
    from ..models.facts import ModelFacts
    from .prompts import ParsedPrompt

_Params = TypeVar("_Params", SamplingParams, BeamSearchParams)
_Packed = TypeVar("_Packed", bound=msgspec.Struct)

PREFIX = f"pr{RECEIPT.version}_"
SEPARATOR = "."  # between the receipts of a body that answers several prompts
# These facts may differ: whether the answer then differs is what is to be found out.
VERSIONS = ("Penstock's version", "version of the kernels")
# And these limits, which only refuse requests, or are in the parameters.
MAX_LENGTH = "max_model_len"
_LIMITS = (MAX_LENGTH, "option limit_", "option enable_logprob", "option max_logprobs")


_SUM_BYTES = 8
MOST_BYTES = 16 << 20  # unpacked
LONG_ARRAY = b"\xdd"  # begins one of more than 65,535 elements
DAMAGED = "its receipt is damaged"


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
        return _converted(self.params, SamplingParams)

    @property
    def beam_search(self) -> BeamSearchParams | None:
        return None if self.beams is None else _converted(self.beams, BeamSearchParams)

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


class ReceiptDoor:
    """Begins the receipts that requests ask for, and checks whether this model can judge one."""

    def __init__(self, facts: "ModelFacts", config: EngineConfig, plan: MemoryPlan) -> None:
        self.facts = facts
        self._config = config
        self._plan = plan
        self._shared: tuple[SamplingParams, SamplingParams, dict[str, Any]] | None = None  # by the last requests

    def begun(self, parsed: "ParsedPrompt", prompt: Prompt, functions: list[Any], end: str) -> ReceiptDraft:
        """What a request's receipt has before its answer. The model's first one waits until its files are digested.
        Raises `RequestError` if it could not be read later."""
        beams = None if parsed.beams is None else msgspec.to_builtins(parsed.beams)
        receipt = Receipt(
            facts=self.facts.of_model(),
            params=self._params_of(parsed.params, prompt.params, prompt.seed),
            prompt=planes(prompt.token_ids),
            samples=[],
            adapter=self.facts.of_adapter(prompt.params.lora_name),
            is_chat=parsed.is_chat,
            tools=[{"type": "function", "function": function} for function in functions],
            end=end,
            beams=beams,
            media=[medium.digest for medium in prompt.media],
        )
        try:
            num_bytes = len(msgspec.msgpack.encode(replace(receipt, prompt=b"")))
        except UnicodeEncodeError as error:
            raise RequestError(f"A receipt can't have this request's parameters and tools: {error}.") from error
        check_receipt(num_bytes, prompt.params)
        return ReceiptDraft.of(receipt, prompt.params.n)

    def _params_of(self, params: SamplingParams, settled: SamplingParams, seed: int) -> dict[str, Any]:
        """`params_of`, which is the same but for the seed for requests that share their parameters."""
        shared = self._shared  # which another thread may replace
        if shared is None or shared[0] is not params or shared[1] is not settled:
            shared = self._shared = params, settled, params_of(params, settled, seed)
        return {**shared[2], "seed": seed}

    def check(self, receipt: Receipt, params: SamplingParams, ids: Sequence[int], media: list[bytes]) -> None:
        """Raise if this model can't judge what the receipt is of, or if it is of another prompt than the given one."""
        if reason := unlike(receipt, self.facts.of_model(), self.facts.of_adapter(params.lora_name)):
            raise RequestError(reason)
        if self._plan.kernels.startswith(("torch", "triton")) and not self._config.deterministic:
            raise RequestError("these kernels' answers depend on their company unless deterministic=True")
        longest = max((len(sample.ids) for sample in receipt.samples), default=0)
        if (need := len(receipt.prompt_ids) + longest) > self._plan.max_model_len:
            raise RequestError(f"it has {need:,} tokens, and here max_model_len is {self._plan.max_model_len:,}")
        if receipt.media and not media:
            raise RequestError("its prompt has pictures or videos, which aren't given (--input)")
        if media != receipt.media or list(ids) != receipt.prompt_ids:
            raise RequestError("the given prompt isn't the one that was answered")
        if len(receipt.samples) != params.n:
            raise RequestError(f"it has {len(receipt.samples)} answers, and its parameters ask for {params.n}")


def params_of(params: SamplingParams, settled: SamplingParams, seed: int) -> dict[str, Any]:
    """The parameters in full, with what the model and its length have settled, and without what concerns only the
    request's way through the engine."""
    own = replace(
        params, seed=seed, max_tokens=settled.max_tokens, min_tokens=settled.min_tokens, max_length=None, min_length=0,
        early_stop=settled.early_stop, priority=0, cache_salt=None, continue_on_restart=True,
        receipt=False, prediction=None,
    )  # fmt: skip
    return {name: value for name, value in msgspec.to_builtins(own).items() if value != _DEFAULTS.get(name)}


_DEFAULTS = msgspec.to_builtins(SamplingParams())


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


class _SampleParts(msgspec.Struct, array_like=True):
    ids: msgspec.Raw


class _Parts(msgspec.Struct, array_like=True):
    """A receipt's fields up to its samples, as they lie there."""

    facts: msgspec.Raw
    params: msgspec.Raw
    prompt: msgspec.Raw
    samples: msgspec.Raw


def _bytes_beside_ids(unpacked: bytes) -> int:
    """Bytes of a receipt but those of its ids. No objects are made of them."""
    parts = msgspec.msgpack.decode(unpacked, type=_Parts)
    if bytes(parts.samples)[:1] == LONG_ARRAY:
        raise RequestError(f"{DAMAGED}: it has too many answers")
    samples = msgspec.msgpack.decode(parts.samples, type=list[_SampleParts])
    return len(unpacked) - len(parts.prompt) - sum(len(sample.ids) for sample in samples)


def _converted(given: dict[str, Any], kind: type[_Params]) -> _Params:
    try:
        return msgspec.convert(given, kind, strict=False)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{DAMAGED}: {error}") from error


# --- how receipts of all kinds are written ---------------------------------------------------------------------------


def as_text(prefix: str, receipt: msgspec.Struct) -> str:
    """Pack a receipt of any kind into one string."""
    packed = zlib.compress(msgspec.msgpack.encode(receipt), 9)
    return prefix + base64.urlsafe_b64encode(_sum(packed) + packed).decode().rstrip("=")


def packed_in(prefix: str, text: str) -> bytes:
    """Take the packed receipt out of its string; raises `RequestError` unless it is whole."""
    body = text.strip().removeprefix(prefix)
    if body == text.strip():
        if other := re.match(rf"{prefix[:2]}(\d{{1,9}})_", body, re.ASCII):
            raise RequestError(RECEIPT.refusal(other[1]))
        raise RequestError(f"{DAMAGED}: it doesn't begin with {prefix}")
    try:
        found = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise RequestError(f"{DAMAGED}: {error}") from error
    packed = found[_SUM_BYTES:]
    if found[:_SUM_BYTES] != _sum(packed):
        raise RequestError(f"{DAMAGED}: its checksum is another")
    return packed


def unpacked_as(
    kind: type[_Packed], packed: bytes, unpacker: "zlib._Decompress", beside_ids: Callable[[bytes], int]
) -> _Packed:
    """Unpack a receipt of this kind. `beside_ids` counts its bytes but those of ids, without making objects of them.

    Raises `RequestError` unless a whole receipt was packed, in the one way in which it is written.
    """
    try:
        unpacked = unpacker.decompress(packed, MOST_BYTES)
        if not unpacker.eof or unpacker.unused_data or beside_ids(unpacked) > MOST_BESIDE_IDS:
            raise RequestError(f"{DAMAGED}: it is too long")
        receipt = msgspec.msgpack.decode(unpacked, type=kind)
        if msgspec.msgpack.encode(receipt) != unpacked:
            raise RequestError(f"{DAMAGED}: it is written in another way")
    except (ValueError, zlib.error, msgspec.MsgspecError, RecursionError) as error:
        raise RequestError(f"{DAMAGED}: {error}") from error
    return receipt


def packed_ids(ids: Sequence[int]) -> bytes:
    """Ids byte by byte: first all lowest bytes, at last all highest, which are mostly 0 and take no room compressed."""
    return planes(column(ids))


def planes(packed: bytes) -> bytes:
    return b"".join([packed[place::4] for place in range(4)])


def unpacked_ids(planes: bytes) -> list[int]:
    packed, count = bytearray(len(planes)), len(planes) // 4
    for place in range(4):
        packed[place::4] = planes[place * count : (place + 1) * count]
    return values(bytes(packed)).tolist()


def _sum(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_SUM_BYTES, person=b"penstock receipt").digest()
