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
    """What a model takes and gives, in the form of OpenRouter and llama.cpp."""

    input_modalities: list[str]
    output_modalities: Annotated[
        tuple[str, ...], Meta(description="text; embeddings, for /v1/embeddings; or classes, for /v1/classify")
    ] = ("text",)


class ModelCard(msgspec.Struct, kw_only=True):
    """A model as OpenAI's clients read it, and with three more fields as Anthropic's do."""

    id: str
    created: int
    created_at: str
    display_name: str
    is_loaded: bool
    object: Literal["model"] = "model"
    type: Literal["model"] = "model"
    owned_by: str = "penstock"
    max_model_len: int | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    architecture: Architecture | UnsetType = UNSET  # of a loaded model
    # The parameters of a request that leaves them out, under OpenRouter's name; of a loaded model.
    default_parameters: dict[str, float] | UnsetType = UNSET


class ModelList(msgspec.Struct, kw_only=True):
    data: list[ModelCard]
    object: Literal["list"] = "list"
    first_id: str | None = None
    last_id: str | None = None
    has_more: Literal[False] = False


class ModelName(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The model to load or to unload, in the form of llama.cpp's clients."""

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
    """A running request, without its texts."""

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
    """Why a model could not be loaded, or what ended its processes, the last time that this happened."""

    message: str
    time: int  # Unix seconds


class Health(msgspec.Struct, kw_only=True):
    """`ok` means that the processes of every loaded model have answered; anything else comes with status 503."""

    status: Literal["ok", "loading", "failed", "silent"]
    models: dict[str, str]  # ok, loading, restarting, failed, silent, unloading, or unloaded until the next request
    reasons: dict[str, str] | UnsetType = UNSET  # by model, where there is one
    last_errors: dict[str, LastError] | UnsetType = UNSET  # by model, also of those that have recovered
    error: Fault | UnsetType = UNSET


class ModelLoad(msgspec.Struct, kw_only=True):
    """How busy a model is, in the words of SGLang's /v1/loads."""

    model: str
    num_running_reqs: Annotated[int, Meta(description="sequences in computation")]
    num_waiting_reqs: Annotated[int, Meta(description="sequences that wait for room")]
    num_total_reqs: int
    max_running_requests: Annotated[int, Meta(description="sequences that a step can have")]
    num_used_tokens: Annotated[int, Meta(description="room for tokens in KV blocks that sequences hold")]
    max_total_num_tokens: Annotated[int, Meta(description="room for tokens in all KV blocks")]
    token_usage: Annotated[float, Meta(description="share of KV memory in use")]
    cache_hit_rate: Annotated[float, Meta(description="share of all prompt tokens found in the prefix cache")]
    dp_rank: Annotated[int, Meta(description="the tree, if the model has several")] = 0


class ServerLoad(msgspec.Struct, kw_only=True):
    server_load: Annotated[int, Meta(description="requests over HTTP that are being answered, as in vLLM's /load")]
    timestamp: str
    dp_rank_count: int
    loads: list[ModelLoad]


class Alive(msgspec.Struct, kw_only=True):
    status: Literal["ok"]
