"""What callers give, sorted into its parts: prompts, conversations, and which parameters go with which.

A mistake in the call (lists of different lengths) raises here; what is wrong with one prompt, be it its type, becomes
that one's refusal. Light to import: a client of the daemon needs this and nothing of what computes. Knows nothing of
models.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ..protocol.beams import BeamSearchParams
from ..protocol.errors import RequestError
from ..protocol.rules import shown
from ..protocol.sampling import SamplingParams
from ..protocol.suggestion import suggestion

if TYPE_CHECKING:
    from .parsing import Tools

Messages = Sequence[Mapping[str, Any]]
Params = SamplingParams | BeamSearchParams | Iterable[SamplingParams] | None

# What `chat_template_kwargs` must not hold: each has an argument of its own.
_OWN_ARGUMENTS = {"messages", "tokenize", "add_generation_prompt", "tools", "chat_template"}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as its template renders it: complete, with every special token that it wants."""

    text: str
    tools: "Tools" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation that is rendered elsewhere, in JSON's own types."""

    messages: Sequence[Any]
    tools: Sequence[Any] | None = None
    chat_template: str | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt as the caller gave it, sorted into its parts."""

    text: str | None
    token_ids: Sequence[int] | None
    params: SamplingParams
    refusal: str | None = None
    is_chat: bool = False  # rendered by a template, so that no special tokens are to be added
    tools: "Tools" = field(default_factory=dict)
    beams: BeamSearchParams | None = None
    conversation: Conversation | None = None  # instead of text


def paired(prompts: Iterable[Any], params: Params, defaults: SamplingParams) -> Iterator[Asked]:
    """Pair prompts with their parameters; lists of different lengths raise before anything runs."""
    if isinstance(params, BeamSearchParams):
        sampling = params.as_sampling()
        return (replace(as_asked(prompt, sampling), beams=params) for prompt in prompts)
    if isinstance(params, SamplingParams) or params is None:
        every = params or defaults
        return (as_asked(prompt, every) for prompt in prompts)
    if isinstance(prompts, Sequence) and isinstance(params, Sequence) and len(prompts) != len(params):
        raise RequestError(
            f"There are {len(prompts)} prompts and {len(params)} sampling_params; give one for each."
        )
    if not isinstance(params, Iterable):
        raise RequestError(f"sampling_params must be SamplingParams, or one for each prompt, not {_type(params)}.")
    return (
        as_asked(prompt, defaults if each is None else each) for prompt, each in zip(prompts, params, strict=True)
    )


def as_asked(prompt: Any, params: SamplingParams) -> Asked:
    """One prompt and its parameters; what is wrong with this one alone becomes its refusal."""
    if not isinstance(params, SamplingParams):
        return Asked(None, None, SamplingParams(), f"sampling_params must be SamplingParams, not {_type(params)}.")
    if isinstance(prompt, str):
        return Asked(prompt, None, params)
    if isinstance(prompt, Rendered):
        return Asked(prompt.text, None, params, is_chat=True, tools=prompt.tools)
    if isinstance(prompt, Conversation):
        return Asked(None, None, params, is_chat=True, conversation=prompt)
    if isinstance(prompt, RequestError):  # a chat template refused this conversation
        return Asked(None, None, params, str(prompt))
    if isinstance(prompt, Mapping):
        return _asked_in_parts(prompt, params)
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if _is_list(prompt):
        return Asked(None, prompt, params)
    sentence = f"A prompt is text, a list of token ids, or a dict with either; this one is {_type(prompt)}."
    return Asked(None, None, params, sentence)


def _is_list(value: Any) -> bool:
    """Bytes are a sequence of numbers, and were meant as text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _type(value: Any) -> str:
    return type(value).__name__


PARTS = {"prompt", "prompt_token_ids", "priority", "cache_salt", "lora_name"}
MEDIA = {"multimodal_data", "multi_modal_data", "mm_info", "image", "video", "audio"}


def _asked_in_parts(prompt: Mapping[str, Any], params: SamplingParams) -> Asked:
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if refusal := fault_of_parts(prompt):
        return Asked(text if isinstance(text, str) else None, None, params, refusal)
    own = {name: prompt[name] for name in ("priority", "cache_salt", "lora_name") if prompt.get(name) is not None}
    try:
        return Asked(text, token_ids, msgspec.structs.replace(params, **own) if own else params)
    except RequestError as error:
        return Asked(text, token_ids, params, str(error))


def fault_of_parts(prompt: Mapping[str, Any]) -> str | None:
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if media := MEDIA & prompt.keys():
        return f"{min(media)}: multimodal prompts are not supported yet."
    if unknown := prompt.keys() - PARTS:
        name = min(unknown, key=str)
        return f"A prompt has no part {shown(name)}; it may have {', '.join(sorted(PARTS))}.{suggestion(name, PARTS)}"
    if text is None and token_ids is None:
        return "A prompt needs `prompt` (text) or `prompt_token_ids`."
    if text is not None and not isinstance(text, str):
        return f"`prompt` must be text, not {_type(text)}."
    if token_ids is not None and not _is_list(token_ids):
        return "prompt_token_ids must be a list of whole numbers."
    return None


def as_batch(prompts: Any) -> Iterable[Any]:
    """One prompt becomes a batch of one; a list of ints is one prompt."""
    if isinstance(prompts, (str, Mapping)) or hasattr(prompts, "tolist"):
        return [prompts]
    if isinstance(prompts, Sequence) and prompts and isinstance(prompts[0], int):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise TypeError(f"prompts must be text, token ids, a dict, or a list of these, not {type(prompts).__name__}.")
    return prompts


def as_conversations(messages: Any) -> Sequence[Messages]:
    """One conversation (a list of dicts) or several (a list of those)."""
    if isinstance(messages, Mapping):
        return [[messages]]
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise TypeError("messages must be a list of {'role': …, 'content': …} dicts, or a list of such lists.")
    return [messages] if not messages or isinstance(messages[0], Mapping) else messages


def check_conversation(conversation: Any) -> None:
    """Raises for what no template could go through, before one is asked."""
    if not _is_list(conversation) or (conversation and _is_list(conversation[0])):
        raise RequestError('A conversation is a list of messages such as {"role": "user", "content": "…"}.')


def is_conversation(prompt: Any) -> bool:
    return isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Mapping) and "role" in prompt[0]


def check_template_options(options: Mapping[str, Any] | None) -> None:
    if taken := _OWN_ARGUMENTS & (options or {}).keys():
        raise RequestError(f"chat_template_kwargs: {min(taken)!r} is an argument of the call itself.")
