"""A prompt as the caller gave it, sorted into its parts: text, token ids, what a template rendered, what stands beside.

What can't be a prompt at all raises; what is wrong with this one stands in it as its refusal.
Knows nothing of models and their limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..protocol.beams import BeamSearchParams
from ..protocol.errors import RequestError
from ..protocol.sampling import SamplingParams
from .parsing import Tools

_PARTS = {"prompt", "prompt_token_ids", "priority", "cache_salt", "lora_name"}
_MEDIA = {"multimodal_data", "multi_modal_data", "mm_info", "image", "video", "audio"}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as its template renders it: complete, with every special token that it wants."""

    text: str
    tools: Tools = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt as the caller gave it, sorted into its parts."""

    text: str | None
    token_ids: Sequence[int] | None
    params: SamplingParams
    refusal: str | None = None
    is_chat: bool = False  # rendered by a template, so that no special tokens are to be added
    tools: Tools = field(default_factory=dict)
    beams: BeamSearchParams | None = None


def asked_of(prompt: Any, params: SamplingParams) -> Asked:
    if isinstance(prompt, str):
        return Asked(prompt, None, params)
    if isinstance(prompt, Rendered):
        return Asked(prompt.text, None, params, is_chat=True, tools=prompt.tools)
    if isinstance(prompt, RequestError):  # a chat template refused this conversation
        return Asked(None, None, params, str(prompt))
    if isinstance(prompt, Mapping):
        return _asked_in_parts(prompt, params)
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if isinstance(prompt, Sequence):
        return Asked(None, prompt, params)
    raise TypeError(
        f"A prompt is text, a list of token ids, or a dict with either; this one is {type(prompt).__name__}."
    )


def _asked_in_parts(prompt: Mapping[str, Any], params: SamplingParams) -> Asked:
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if media := sorted(_MEDIA & prompt.keys()):
        return Asked(text, token_ids, params, f"{media[0]}: multimodal prompts are not supported yet.")
    if unknown := sorted(prompt.keys() - _PARTS):
        return Asked(
            text, token_ids, params, f"A prompt has no part {unknown[0]!r}; it may have {', '.join(sorted(_PARTS))}."
        )
    if text is None and token_ids is None:
        return Asked(None, None, params, "A prompt needs `prompt` (text) or `prompt_token_ids`.")
    if isinstance(token_ids, Sequence) or token_ids is None:
        own = {name: prompt[name] for name in ("priority", "cache_salt", "lora_name") if prompt.get(name) is not None}
        try:
            return Asked(text, token_ids, msgspec.structs.replace(params, **own) if own else params)
        except RequestError as error:
            return Asked(text, token_ids, params, str(error))
    return Asked(text, None, params, "prompt_token_ids must be a list of whole numbers.")
