"""Bodies of the smaller endpoints: errors, the list of models, tokens of a text, health."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .chat import ChatMessage, Tool
from .sampling import FreeForm, TokenId


class Fault(msgspec.Struct, kw_only=True):
    message: str
    type: str
    code: int | str | None
    param: str | None = None


class ErrorBody(msgspec.Struct, kw_only=True):
    error: Fault


class Architecture(msgspec.Struct, kw_only=True):
    """As OpenRouter and llama.cpp tell clients whether a model sees."""

    input_modalities: list[str]
    output_modalities: tuple[str, ...] = ("text",)


class ModelCard(msgspec.Struct, kw_only=True):
    id: str
    created: int
    is_loaded: bool
    object: Literal["model"] = "model"
    owned_by: str = "penstock"
    max_model_len: int | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    architecture: Architecture | UnsetType = UNSET  # of a loaded model
    # Of a loaded model, as OpenRouter names it: what a parameter is that a request leaves out.
    default_parameters: dict[str, float] | UnsetType = UNSET


class ModelList(msgspec.Struct, kw_only=True):
    data: list[ModelCard]
    object: Literal["list"] = "list"


class ModelName(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As llama.cpp's clients load and unload models."""

    model: str


class Done(msgspec.Struct, kw_only=True):
    success: Literal[True] = True


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A text (`prompt`), or a conversation (`messages`) as its template renders it."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1)] | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: FreeForm | None = None
    add_generation_prompt: bool = True
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeReply(msgspec.Struct, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    tokens: list[TokenId]
    model: str | None = None


class DetokenizeReply(msgspec.Struct, kw_only=True):
    prompt: str


RequestState = Annotated[
    Literal["loading", "waiting", "prompt", "generating"],
    Meta(description="its model is loading; it is queued; its prompt is computed; it generates tokens"),
]


class RunningRequest(msgspec.Struct, kw_only=True):
    """Nothing of what it says is told."""

    id: Annotated[str, Meta(description="the id of its answer")]
    endpoint: str
    model: str
    state: RequestState
    prompt_tokens: Annotated[int, Meta(description="tokens of its prompts that have reached the model")]
    generated_tokens: int
    seconds: Annotated[float, Meta(description="seconds since it arrived")]
    object: Literal["request"] = "request"


class RequestList(msgspec.Struct, kw_only=True):
    data: list[RunningRequest]
    object: Literal["list"] = "list"


class StoppedRequest(msgspec.Struct, kw_only=True):
    id: str
    stopped: Literal[True] = True
    object: Literal["request"] = "request"


class LastError(msgspec.Struct, kw_only=True):
    """Why a model could not be loaded the last time that it couldn't, or what ended its processes."""

    message: str
    time: int  # Unix seconds


class Health(msgspec.Struct, kw_only=True):
    """With `ok` every loaded model's processes have answered; else it comes with status 503."""

    status: Literal["ok", "loading", "failed", "silent"]
    models: dict[str, str]  # ok, loading, restarting, failed, silent, unloading, or unloaded: loaded when it is asked
    reasons: dict[str, str] | UnsetType = UNSET  # by model, where there is one
    last_errors: dict[str, LastError] | UnsetType = UNSET  # by model, also of those that are there again
    error: Fault | UnsetType = UNSET


class Alive(msgspec.Struct, kw_only=True):
    status: Literal["ok"]
