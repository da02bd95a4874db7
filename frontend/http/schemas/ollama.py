"""Bodies of the endpoints below /api, in Ollama's form: conversations and prompts in, lines of JSON out."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .chat import TokenLogprob
from .foreign_fields import OpenBody
from .sampling import TAKEN, TAKEN_WITH_CHOICES, Count, FreeForm, Ranked


class OllamaFunction(msgspec.Struct, kw_only=True):
    name: str
    arguments: FreeForm = {}


class OllamaCall(msgspec.Struct, kw_only=True):
    """A call, in an earlier turn or in an answer; answers have calls as a whole."""

    function: OllamaFunction
    id: str | UnsetType | None = UNSET


class OllamaMessage(msgspec.Struct, kw_only=True):
    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | None = None
    thinking: str | None = None
    images: Annotated[list[str] | None, Meta(description="pictures in base64")] = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


_ELSEWHERE = {
    **dict.fromkeys((*TAKEN, "max_tokens", "num_predict", "num_ctx"), "put it into options"),
    **dict.fromkeys((*TAKEN_WITH_CHOICES, "tool_choice", "receipt"), "/v1/chat/completions takes it"),
    "response_format": "give format",
    "reasoning_effort": "give think",
}


class OllamaRequest(OpenBody, kw_only=True, dict=True):
    """The fields of both generating endpoints."""

    elsewhere = _ELSEWHERE

    model: Annotated[str | None, Meta(description="a name from /api/tags, with or without :latest")] = None
    stream: bool | None = True
    options: FreeForm | None = None
    format: Annotated[str | FreeForm | None, Meta(description="json, or a JSON schema")] = None
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    keep_alive: Annotated[
        str | float | None, Meta(description="0 without a prompt unloads the model; otherwise without effect")
    ] = None
    logprobs: bool | None = None
    top_logprobs: Ranked | None = None
    truncate: Annotated[bool | None, Meta(description="without effect: a prompt that is too long is refused")] = None
    shift: Annotated[bool | None, Meta(description="without effect: prompts are not shifted")] = None
    continue_on_restart: bool | None = None


class OllamaChatRequest(OllamaRequest, kw_only=True, dict=True):
    elsewhere = {**_ELSEWHERE, **dict.fromkeys(("prompt", "system", "images"), "put it into a message")}

    messages: list[OllamaMessage] | None = None
    tools: list[FreeForm] | None = None


class OllamaGenerateRequest(OllamaRequest, kw_only=True, dict=True):
    elsewhere = {**_ELSEWHERE, **dict.fromkeys(("messages", "tools"), "/api/chat takes it")}

    prompt: str | None = None
    system: str | None = None
    images: Annotated[list[str] | None, Meta(description="pictures in base64")] = None
    raw: Annotated[bool | None, Meta(description="continue the prompt as it is, without a template")] = None
    suffix: Annotated[str | None, Meta(description="refused: filling a gap is not supported")] = None
    template: Annotated[str | None, Meta(description="refused: the model's own is used")] = None
    context: Annotated[list[int] | None, Meta(description="refused: send the conversation to /api/chat")] = None


class OllamaAnswerMessage(msgspec.Struct, kw_only=True):
    content: str = ""
    role: Literal["assistant"] = "assistant"
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaCall] | UnsetType = UNSET


class OllamaPiece(msgspec.Struct, kw_only=True):
    """A line of a stream, or a whole answer. The last one has `done`, the reason and the counts; durations are in
    nanoseconds."""

    model: str
    created_at: str
    done: bool = False
    done_reason: str | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET
    logprobs: list[TokenLogprob] | UnsetType = UNSET
    notice: str | UnsetType = UNSET  # about fields that had no effect, or about processes that died


class OllamaChatPiece(OllamaPiece, kw_only=True):
    message: OllamaAnswerMessage


class OllamaGeneratePiece(OllamaPiece, kw_only=True):
    response: str = ""
    thinking: str | UnsetType = UNSET


class OllamaEmbedRequest(OpenBody, kw_only=True, dict=True):
    model: Annotated[str | None, Meta(description="a name from /api/tags, with or without :latest")] = None
    input: str | list[str] = ""
    truncate: Annotated[bool | None, Meta(description="false: refuse a text that is too long")] = None
    dimensions: Count | None = None
    options: Annotated[FreeForm | None, Meta(description="without effect")] = None
    keep_alive: Annotated[str | float | None, Meta(description="without effect")] = None


class OllamaEmbedReply(msgspec.Struct, kw_only=True):
    model: str
    embeddings: list[list[float]]
    total_duration: int  # in nanoseconds
    load_duration: int
    prompt_eval_count: int
    notice: str | UnsetType = UNSET  # about vectors that were cut


class OllamaOldEmbedRequest(OpenBody, kw_only=True, dict=True):
    model: str | None = None
    prompt: str | None = None
    options: Annotated[FreeForm | None, Meta(description="without effect")] = None
    keep_alive: Annotated[str | float | None, Meta(description="without effect")] = None


class OllamaOldEmbedReply(msgspec.Struct, kw_only=True):
    embedding: list[float]


class ModelDetails(msgspec.Struct, kw_only=True):
    """What a loaded model's configuration says of it; Ollama's clients expect all of these fields."""

    parent_model: str = ""
    format: str = ""
    family: str = ""
    families: list[str] | None = None
    parameter_size: str = ""
    quantization_level: str = ""


class TaggedModel(msgspec.Struct, kw_only=True):
    name: str
    model: str
    modified_at: str
    digest: str
    size: int
    details: ModelDetails
    capabilities: list[str]


class TagList(msgspec.Struct, kw_only=True):
    models: list[TaggedModel]


class LoadedTag(TaggedModel, kw_only=True):
    context_length: int
    expires_at: str
    size_vram: int = 0


class LoadedTags(msgspec.Struct, kw_only=True):
    models: list[LoadedTag]


class ShowRequest(OpenBody, kw_only=True, dict=True):
    model: str | None = None
    name: Annotated[str | None, Meta(description="an older name of model")] = None
    verbose: bool | None = None
    system: Annotated[str | None, Meta(description="without effect")] = None
    template: Annotated[str | None, Meta(description="without effect")] = None
    options: Annotated[FreeForm | None, Meta(description="without effect")] = None


class ShownModel(msgspec.Struct, kw_only=True):
    details: ModelDetails
    model_info: FreeForm
    capabilities: list[str]
    modified_at: str
    modelfile: str = ""
    parameters: str = ""
    template: str = ""


class OllamaVersion(msgspec.Struct, kw_only=True):
    version: Annotated[str, Meta(description="of Ollama's API, which clients compare")]
    penstock: Annotated[str, Meta(description="Penstock's own")]


class OllamaError(msgspec.Struct, kw_only=True):
    error: str
