"""Translates Ollama's requests to those of OpenAI's endpoints, whose functions then check and answer them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from ..answers.errors import ApiError
from ..loaded_model import LoadedModel
from ..schemas.chat import ChatRequest
from ..schemas.completions import CompletionRequest
from ..schemas.foreign_fields import unread_names, unread_notice
from ..schemas.ollama import OllamaCall, OllamaChatRequest, OllamaGenerateRequest, OllamaMessage, OllamaRequest
from ..schemas.sampling import TAKEN_WITH_CHOICES, SamplingRequest
from .decoding import converted

# How a model is loaded and computed is said by the owner of the server; prompts are never shifted.
_WITHOUT_EFFECT = (
    "numa", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mmap",
    "use_mlock", "embedding_only", "num_thread", "num_keep", "penalize_newline",
)  # fmt: skip
_OF_BODIES = {
    **dict.fromkeys(
        (*OllamaChatRequest.__struct_fields__, *OllamaGenerateRequest.__struct_fields__), "put it next to options"
    ),
    **dict.fromkeys((*TAKEN_WITH_CHOICES, "tool_choice", "receipt"), "/v1/chat/completions takes it"),
    "response_format": "put format next to options",
}
_OPTIONS = (
    *(name for name in SamplingRequest.__struct_fields__ if name not in ("model", "stream", "receipt")),
    *_WITHOUT_EFFECT, "num_predict", "num_ctx", "max_tokens",
)  # fmt: skip
# They look at the last repeat_last_n tokens in Ollama, so none of them acts if these are none.
_PENALTIES = ("repeat_penalty", "repetition_penalty", "presence_penalty", "frequency_penalty")
_NAMES = {"max_tokens": "num_predict", "repetition_penalty": "repeat_penalty"}
_NOT_HERE = {
    "suffix": "filling a gap is not supported",
    "template": "the model's own template is used",
    "context": "send the whole conversation to /api/chat",
}


class Translated(NamedTuple):
    request: ChatRequest | CompletionRequest  # the latter of a raw prompt
    notice: str


def translated_chat(request: OllamaChatRequest, model: LoadedModel) -> Translated:
    messages = [_message(message) for message in request.messages or ()]
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant" and last.get("content") and "tool_calls" not in last:
        if request.format:
            why = "format holds a whole answer, so the last message can't be the assistant's, to be continued."
            raise ApiError(400, why, param="format")
        return _chat(request, model, messages, request.tools, continue_final_message=True, add_generation_prompt=False)
    return _chat(request, model, messages, request.tools)


def translated_prompt(request: OllamaGenerateRequest, model: LoadedModel) -> Translated:
    for name, reason in _NOT_HERE.items():
        if getattr(request, name):
            raise ApiError(400, f"{name}: {reason}; leave it out.", param=name)
    if not request.raw:
        system = [{"role": "system", "content": request.system}] if request.system else []
        question = OllamaMessage(role="user", content=request.prompt, images=request.images)
        return _chat(request, model, [*system, _message(question)], None)
    if request.images or request.system or request.think:
        raise ApiError(400, "raw: a raw prompt has no images, no system prompt and no thoughts.", param="raw")
    options, notice = _options(request, model)
    fields = {"prompt": request.prompt, **_form(request)}
    if request.logprobs:
        fields["logprobs"] = request.top_logprobs or 0
    return Translated(converted({**options, **fields}, CompletionRequest), notice)


def _chat(
    request: OllamaRequest,
    model: LoadedModel,
    messages: Sequence[Any],
    tools: Sequence[Any] | None,
    **further: Any,
) -> Translated:
    options, notice = _options(request, model)
    fields = {
        "messages": messages,
        "tools": tools,
        "logprobs": request.logprobs,
        "top_logprobs": request.top_logprobs,
        "reasoning_effort" if isinstance(request.think, str) else "think": request.think,
        **_form(request),
        **further,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return Translated(converted({**options, **given}, ChatRequest), notice)


def _form(request: OllamaRequest) -> dict[str, Any]:
    """The fields that both kinds of requests have under the same names."""
    form = request.format or None
    if isinstance(form, str) and form != "json":
        raise ApiError(400, 'format must be "json" or a JSON schema.', param="format")
    if form is not None:
        is_json = isinstance(form, str)
        form = {"type": "json_object"} if is_json else {"type": "json_schema", "json_schema": {"schema": form}}
    fields = {
        "model": request.model,
        "response_format": form,
        "continue_on_restart": request.continue_on_restart,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _options(request: OllamaRequest, model: LoadedModel) -> tuple[dict[str, Any], str]:
    """The sampling options under our names, and the notice about fields and options without effect."""
    given = {name: _whole(value) for name, value in (request.options or {}).items() if value is not None}
    unread = unread_names(given, _OPTIONS, "options", _OF_BODIES)
    notices = [request.unread_notice, unread_notice(unread)]
    length = given.pop("num_ctx", None)
    if isinstance(length, int) and length > model.max_model_len:
        notices.append(
            f"num_ctx={length:,} has no effect: this model was loaded with max_model_len={model.max_model_len:,}."
        )
    options = {name: value for name, value in given.items() if name not in (*unread, *_WITHOUT_EFFECT)}
    if options.get("repeat_last_n") == 0:
        options = {name: value for name, value in options.items() if name not in _PENALTIES}
    if "num_predict" in options and "max_tokens" in options:
        raise ApiError(400, "max_tokens is another name of num_predict; give one of them.", param="options")
    if "num_predict" in options and not _is_negative(most := options.pop("num_predict")):  # -1 and -2: no limit
        options["max_tokens"] = most
    if _is_negative(options.get("seed")):  # a random one
        del options["seed"]
    return options, " ".join(filter(None, notices))


def _whole(value: Any) -> Any:
    """Take 3.0 for 3, as Ollama does: its clients in some languages know one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def in_their_words(error: ApiError, request: OllamaRequest) -> ApiError:
    """The error with Ollama's names of parameters, unless the request has ours."""
    text = str(error)
    for ours, theirs in _NAMES.items():
        if ours not in (request.options or {}):
            text = re.sub(rf"\b{ours}\b", theirs, text)
    return ApiError(error.status, text, param=error.param, code=error.code, retry_after=error.retry_after)


def _is_negative(value: Any) -> bool:
    return type(value) is int and value < 0


def _message(message: OllamaMessage) -> Mapping[str, Any]:
    """A message in the form of OpenAI's conversations."""
    pictures = [{"type": "image_url", "image_url": _data_url(each)} for each in message.images or ()]
    text = {"type": "text", "text": message.content or ""}
    fields = {
        "role": message.role,
        "content": [*pictures, text] if pictures else text["text"],
        "reasoning_content": message.thinking,
        "name": message.tool_name,
        "tool_call_id": message.tool_call_id,
        "tool_calls": [_call(call) for call in message.tool_calls or ()] or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _call(call: OllamaCall) -> Mapping[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": None if call.id is UNSET else call.id, "function": function}


def _data_url(picture: str) -> str:
    return picture if picture.startswith("data:") else f"data:image/png;base64,{picture}"
