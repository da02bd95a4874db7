"""Parses callers' prompts and conversations, and pairs them with parameters.

A mistake in the call (lists of different lengths) raises here; a fault of one prompt, even a wrong type, becomes its
refusal. This module is light to import: a client of the daemon needs it and nothing that computes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from numbers import Integral
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import LimitError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Said
from ...protocol.parameters.beams import BeamSearchParams
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.wire import column
from ..media.sources.encoded_media import EncodedMedium
from ..media.sources.parts import has_media, media_of_prompt, sources_of_prompt
from ..receipts.receipt import ClaimedPrompt, Receipt
from .continuation import Continuation

if TYPE_CHECKING:
    from ..media.placeholders import Expanded

# The media of a prompt, or a function that opens them, which raises `RequestError`.
Media = Sequence[EncodedMedium] | Callable[[], Sequence[EncodedMedium]]

Messages = Sequence[Mapping[str, Any]]
Params = SamplingParams | BeamSearchParams | PoolingParams | Iterable[SamplingParams | PoolingParams] | None

# Hardly any text has as many on average: a longer one has more tokens than are counted for it.
CHARACTERS_PER_TOKEN = 16
_MISSING: Any = object()
NO_TEXT = (
    "This model gives numbers and writes no text: use embed, classify or score (over HTTP /v1/embeddings and its "
    "neighbours)."
)
# The parameter that lets a text be cut.
CUTTING = "truncate_prompt_tokens=-1 (in a shell --truncate-prompt-tokens -1)"
NO_NUMBERS = "This model writes text and gives no vectors: open it with runner='pooling', or use a model for that."
NO_SIGHT = "This model sees no pictures and no videos: a prompt for it is text."


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """The text of a conversation, rendered by its template, with every special token."""

    text: str
    tools: Sequence[Any] = ()
    media: Sequence[EncodedMedium] = ()
    messages: Messages = ()  # that it was rendered from


@dataclass(frozen=True, slots=True)
class TextPair:
    """The ids of two texts that a model compares, as its tokenizer joins them."""

    token_ids: Sequence[int]
    second_text: int = 0  # where tokens have the second type; 0: nowhere


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation that is rendered later, or elsewhere."""

    messages: Sequence[Any]
    tools: Sequence[Any] | None = None
    chat_template: str | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ParsedPrompt:
    """One prompt of a caller, parsed into its parts, with its parameters."""

    text: str | None
    token_ids: Sequence[int] | None
    params: SamplingParams
    refusal: str | None = None
    is_chat: bool = False  # rendered by a template, so no special tokens are added
    tools: Sequence[Any] = ()
    beams: BeamSearchParams | None = None
    pooled: PoolingParams | None = None  # vectors instead of an answer
    second_text: int = 0  # of a pair's ids, where the second text begins; 0: there is none
    conversation: Conversation | None = None  # instead of text
    messages: Messages = ()  # that its text was rendered from
    media: Media = ()
    placed: "Expanded | None" = None  # with its decoded media
    seed: int | None = None  # instead of the parameters', which many prompts may share
    delta_tokens: int = 0  # a delta after each so many tokens, even if the answer isn't streamed; 0: none
    said: Sequence[Said] = ()  # by the samples of an answer that goes on
    receipt: Receipt | None = None  # of an answer that is to be judged
    expected: Sequence[bytes] = ()  # int32, by sample: what the answer is expected to say, as drafts alone

    @property
    def has_media(self) -> bool:
        """Whether there are media to open and decode."""
        return bool(self.media) or (self.conversation is not None and may_have_media(self.conversation))

    def opened_media(self) -> Sequence[EncodedMedium]:
        """The media next to its text or ids; raises `RequestError`."""
        return self.media() if callable(self.media) else self.media


def parse_prompts(prompts: Iterable[Any], params: Params, defaults: SamplingParams) -> Iterator[ParsedPrompt]:
    """Pair prompts with their parameters; lists of different lengths raise before anything runs."""
    if isinstance(params, BeamSearchParams):
        sampling = params.as_sampling()
        return (replace(parse_checked(prompt, sampling), beams=params) for prompt in prompts)
    if isinstance(params, PoolingParams):
        sampling = params.as_sampling()
        return (replace(parse_checked(prompt, sampling), pooled=params) for prompt in prompts)
    if isinstance(params, SamplingParams) or params is None:
        every = _checked(params or defaults)
        return (parse_checked(prompt, every) for prompt in prompts)
    if isinstance(params, (str, bytes, Mapping)) or not isinstance(params, Iterable):
        raise RequestError(f"sampling_params must be SamplingParams, or one for each prompt, not {_type(params)}.")
    if isinstance(prompts, Sequence) and isinstance(params, Sequence) and len(prompts) != len(params):
        raise RequestError(f"There are {len(prompts)} prompts and {len(params)} sampling_params; give one for each.")
    return _each_with_its_own(prompts, params, defaults)


def _each_with_its_own(
    prompts: Iterable[Any], params: Iterable[Any], defaults: SamplingParams
) -> Iterator[ParsedPrompt]:
    for prompt, each in zip_longest(prompts, params, fillvalue=_MISSING):
        if prompt is _MISSING or each is _MISSING:
            raise RequestError("There are not as many sampling_params as prompts; give one for each.")
        yield parse_prompt(prompt, defaults if each is None else each)


def parse_prompt(prompt: Any, params: SamplingParams | PoolingParams) -> ParsedPrompt:
    """One prompt and its parameters; a fault of this one alone becomes its refusal."""
    if isinstance(params, PoolingParams):
        return replace(parse_checked(prompt, params.as_sampling()), pooled=params)
    try:
        return parse_checked(prompt, _checked(params))
    except RequestError as error:
        return ParsedPrompt(None, None, SamplingParams(), str(error))


def _checked(params: Any) -> SamplingParams:
    """Check parameters again, which may have been changed since construction. Valid ones stay the same object."""
    if not isinstance(params, SamplingParams):
        raise RequestError(f"sampling_params must be SamplingParams, not {_type(params)}.")
    try:
        copy = msgspec.structs.replace(params)
        return params if copy == params else copy
    except RequestError:
        raise
    except Exception as error:  # a value whose own methods fail
        raise RequestError(f"sampling_params can't be read: {_type(error)}.") from error


def parse_checked(prompt: Any, params: SamplingParams) -> ParsedPrompt:
    """One prompt with parameters that are checked already; its fault becomes its refusal."""
    try:
        return _by_kind(prompt, params)
    except Exception as error:  # a value whose own methods fail
        return ParsedPrompt(None, None, params, f"This prompt can't be read: {_type(error)}.")


def _by_kind(prompt: Any, params: SamplingParams) -> ParsedPrompt:
    if isinstance(prompt, str):
        return ParsedPrompt(_plain_text(prompt), None, params)
    if isinstance(prompt, ParsedPrompt):
        return prompt
    if isinstance(prompt, RenderedPrompt):
        tools, media, messages = prompt.tools, prompt.media, prompt.messages
        return ParsedPrompt(prompt.text, None, params, is_chat=True, tools=tools, media=media, messages=messages)
    if isinstance(prompt, Conversation):
        return ParsedPrompt(None, None, params, is_chat=True, conversation=prompt)
    if isinstance(prompt, TextPair):
        return ParsedPrompt(None, prompt.token_ids, params, second_text=prompt.second_text)
    if isinstance(prompt, Continuation):
        return replace(_by_kind(prompt.prompt, params), said=prompt.said)
    if isinstance(prompt, Receipt):
        return of_receipt(prompt)
    if isinstance(prompt, ClaimedPrompt):
        asked = of_receipt(prompt.receipt)
        return replace(_by_kind(prompt.prompt, asked.params), beams=asked.beams, receipt=asked.receipt)
    if isinstance(prompt, RequestError):  # a chat template refused this conversation
        return ParsedPrompt(None, None, params, str(prompt))
    if isinstance(prompt, Mapping):
        return _parsed_dict(prompt, params)
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if _is_list(prompt):
        return ParsedPrompt(None, prompt, params)
    sentence = f"A prompt is text, a list of token ids, or a dict with either; this one is {_type(prompt)}."
    return ParsedPrompt(None, None, params, sentence)


def of_receipt(receipt: Receipt) -> ParsedPrompt:
    """The request that a receipt is of; its answer ends where another token is drawn than it has."""
    try:
        params, beams = receipt.sampling, receipt.beam_search
        ids, is_chat = receipt.prompt_ids, receipt.is_chat
        return ParsedPrompt(None, ids, params, None, is_chat, receipt.tools, beams, receipt=receipt)
    except RequestError as error:
        return ParsedPrompt(None, None, SamplingParams(), str(error), receipt=receipt)


def _is_list(value: Any) -> bool:
    """Bytes are a sequence of numbers, too, but were meant as text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _plain_text(text: str) -> str:
    """A plain `str` from a subclass, which may override length and encoding."""
    return text if type(text) is str else str.__str__(text)


def _type(value: Any) -> str:
    return type(value).__name__


PARTS = {"prompt", "prompt_token_ids", "priority", "cache_salt", "lora_name"}
# Keys of a prompt's media, and others under which they might be given.
MEDIA = {"multimodal_data", "multi_modal_data"}
OTHER_MEDIA = {"mm_info", "images", "image", "videos", "video", "audio"}


def _parsed_dict(prompt: Mapping[str, Any], params: SamplingParams) -> ParsedPrompt:
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if refusal := fault_of_dict(prompt):
        return ParsedPrompt(_plain_text(text) if isinstance(text, str) else None, None, params, refusal)
    own = {name: prompt[name] for name in ("priority", "cache_salt", "lora_name") if prompt.get(name) is not None}
    text = None if text is None else _plain_text(text)
    try:
        params = msgspec.structs.replace(params, **own) if own else params
        return ParsedPrompt(text, token_ids, params, media=_media_of(prompt))
    except RequestError as error:
        return ParsedPrompt(text, token_ids, params, str(error))


def _media_of(prompt: Mapping[str, Any]) -> Media:
    """A prompt's media. A dict is the caller's own, so its paths and URLs are opened. Empty lists count as none."""
    given = next((prompt[name] for name in MEDIA if prompt.get(name) is not None), None)
    has_some = given is not None and bool(sources_of_prompt(given))
    return () if not has_some else partial(media_of_prompt, given, may_open=True)


def fault_of_dict(prompt: Mapping[str, Any]) -> str | None:
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if misplaced := OTHER_MEDIA & prompt.keys():
        return f"{min(misplaced)}: media are given as multimodal_data={{'image': [...], 'video': [...]}}."
    if unknown := prompt.keys() - PARTS - MEDIA:
        name = min(unknown, key=str)
        return f"A prompt has no part {shown(name)}; it may have {', '.join(sorted(PARTS))}.{suggestion(name, PARTS)}"
    if text is None and token_ids is None:
        return "A prompt needs `prompt` (text) or `prompt_token_ids`."
    if text is not None and token_ids is not None:
        return "`prompt` and `prompt_token_ids` are two ways to give one prompt; give one of them."
    if text is not None and not isinstance(text, str):
        return f"`prompt` must be text, not {_type(text)}."
    if token_ids is not None and not _is_list(token_ids):
        return "prompt_token_ids must be a list of whole numbers."
    return None


def as_batch(prompts: Any) -> Iterable[Any]:
    """One prompt becomes a batch of one; a list of only numbers is one prompt."""
    if isinstance(prompts, (str, bytes, bytearray, range, Mapping)) or hasattr(prompts, "tolist"):
        return [prompts]
    if isinstance(prompts, (list, tuple)) and prompts and all(isinstance(each, Integral) for each in prompts):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise TypeError(f"prompts must be text, token ids, a dict, or a list of these, not {type(prompts).__name__}.")
    return prompts


def as_conversations(messages: Any) -> Sequence[Messages]:
    """One conversation (a list of dicts) or several (a list of those)."""
    if isinstance(messages, Mapping):
        return [[messages]]
    if not isinstance(messages, (list, tuple)):
        raise TypeError("messages must be a list of {'role': …, 'content': …} dicts, or a list of such lists.")
    return messages if any(isinstance(each, (list, tuple)) for each in messages) else [messages]


def is_conversation(prompt: Any) -> bool:
    try:
        return isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], Mapping)
    except Exception:  # whatever it is, it will be refused
        return False


def may_have_media(prompt: Any) -> bool:
    """Whether a prompt is of a kind that can have pictures, and seems to have some."""
    try:
        if isinstance(prompt, Mapping):
            return not MEDIA.isdisjoint(prompt)
        messages = prompt.messages if isinstance(prompt, Conversation) else prompt
        return is_conversation(messages) and has_media(messages)
    except Exception:  # whatever it is, it will be refused
        return False


def is_several(prompt: Any) -> bool:
    """Whether it is a list of prompts or conversations."""
    try:
        parts = prompt if is_conversation(prompt) else prompt[:1] if isinstance(prompt, (list, tuple)) else ()
        return any(isinstance(each, (str, list, tuple)) for each in parts)
    except Exception:  # whatever it is, it will be refused
        return False


def require_fitting(ids: Sequence[int], params: PoolingParams, longest: int) -> None:
    """Raise if a text for a model that gives numbers is too long, and may not be cut."""
    if params.truncate_prompt_tokens is None and len(ids) > longest:
        raise LimitError(
            f"The text has {len(ids):,} tokens, and the model takes {longest:,}. Shorten it, or cut it with {CUTTING}."
        )


def packed_prompt(ids: Sequence[int], plan: MemoryPlan, num_outputs: int = 1) -> bytes:
    """Pack a prompt; raises `RequestError` if it is invalid for this model. For a very long one only the length is
    checked. It leaves room for so many tokens of output."""
    try:
        return _packed_prompt(ids, plan, num_outputs)
    except RequestError:
        raise
    except Exception:  # of a value whose own methods fail; Decimal has numbers of its own that compare with none
        raise RequestError("Prompt token ids must be whole numbers.") from None


def _packed_prompt(ids: Sequence[int], plan: MemoryPlan, num_outputs: int) -> bytes:
    if not len(ids):
        raise RequestError("The prompt is empty: it has no tokens.")
    if len(ids) + num_outputs > plan.max_model_len:
        room = " and at least one output token" if num_outputs else ""
        raise LimitError(
            f"The prompt has {len(ids):,} tokens, and max_model_len={plan.max_model_len:,} must hold it{room}. Shorten "
            "it or raise max_model_len."
        )
    if bool in set(map(type, ids)):  # True would be the id 1
        raise TypeError
    low, high = min(ids), max(ids)
    if low < 0 or high >= plan.vocab_size:
        wrong = shown(low if low < 0 else high)
        raise RequestError(f"Token id {wrong} is not in the vocabulary (0 to {plan.vocab_size - 1}).")
    return column(ids)
