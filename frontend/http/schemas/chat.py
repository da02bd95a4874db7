"""Bodies of /v1/chat/completions: conversations in, messages out, whole or as a stream."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ....protocol.errors import RequestError
from .sampling import Count, Effort, FreeForm, PromptLogprobs, Ranked, Sampling, Usage


class ContentPart(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Text, or for a model that sees, a picture or a video as a data: URL; parts of other types are not read."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | FreeForm | None = None
    video_url: str | FreeForm | None = None
    image: str | None = None
    video: str | list[str] | None = None  # a file, or frames
    detail: str | None = None
    file_id: str | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    fps: float | None = None
    sample_fps: float | None = None
    num_frames: int | None = None
    min_frames: int | None = None
    max_frames: int | None = None


class CalledFunction(msgspec.Struct, kw_only=True):
    name: str
    arguments: str | FreeForm = "{}"


class Called(msgspec.Struct, kw_only=True):
    """A call in a message of an earlier turn."""

    function: CalledFunction
    id: str | None = None
    type: str | None = None


class ChatMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message of a conversation, without fields that clients copy from answers and no template reads."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Called] | None = None
    tool_call_id: str | None = None


class Function(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str | None = None
    parameters: FreeForm | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True):
    function: Function
    type: Literal["function"] = "function"


class ChosenFunction(msgspec.Struct, kw_only=True):
    name: str


class AllowedTool(msgspec.Struct, kw_only=True):
    function: ChosenFunction
    type: Literal["function"] = "function"


class AllowedTools(msgspec.Struct, kw_only=True):
    """The tools that this answer may call."""

    tools: list[AllowedTool]
    mode: Literal["auto", "required"]


class ChosenTool(msgspec.Struct, kw_only=True):
    type: Literal["function", "allowed_tools"] = "function"
    function: ChosenFunction | None = None
    allowed_tools: AllowedTools | None = None

    @property
    def chosen(self) -> ChosenFunction | AllowedTools:
        found = self.function if self.type == "function" else self.allowed_tools
        if found is None:
            raise RequestError(f"tool_choice needs {self.type}, which must be an object.")
        return found


class ThinkingOptions(msgspec.Struct, kw_only=True):
    type: Literal["enabled", "disabled", "adaptive", "auto"] | None = None
    budget_tokens: Count | None = None


class Reasoning(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How a model thinks, in the form of OpenAI and OpenRouter."""

    enabled: bool | None = None
    effort: Effort | None = None
    max_tokens: Count | None = None
    summary: str | None = None  # without effect
    generate_summary: str | None = None  # without effect


class ChatReasoning(Reasoning, kw_only=True, forbid_unknown_fields=True):
    exclude: bool | None = None


class ChatRequest(Sampling, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Ranked | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    include_reasoning: bool | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    enable_thinking: bool | None = None
    think: Annotated[bool | None, Meta(description="another name of enable_thinking")] = None
    thinking: ThinkingOptions | None = None
    reasoning: ChatReasoning | None = None
    chat_template: Annotated[str | None, Meta(description="refused unless the server trusts its clients")] = None
    chat_template_kwargs: FreeForm | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    echo: bool | None = None

    @property
    def shows_thoughts(self) -> bool:
        is_excluded = self.reasoning is not None and self.reasoning.exclude is True
        return self.include_reasoning is not False and not is_excluded


class FunctionCall(msgspec.Struct, kw_only=True, omit_defaults=True):
    arguments: str
    name: str | UnsetType = UNSET


class ToolCall(msgspec.Struct, kw_only=True):
    function: FunctionCall
    id: str | UnsetType = UNSET
    index: int | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class TopLogprob(msgspec.Struct, kw_only=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob, kw_only=True):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, kw_only=True):
    content: list[TokenLogprob]
    refusal: None = None


class AnswerMessage(msgspec.Struct, kw_only=True):
    content: str | None
    role: Literal["assistant"] = "assistant"
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET
    refusal: None = None


class ChatChoice(msgspec.Struct, kw_only=True):
    index: int
    message: AnswerMessage
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: ChatLogprobs | None = None


class ChatCompletion(msgspec.Struct, kw_only=True):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    notice: str | UnsetType = UNSET  # if the model's processes died: how the answer goes on
    receipt: str | UnsetType = UNSET


class AnswerDelta(msgspec.Struct, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    index: int
    delta: AnswerDelta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    stop_reason: int | str | UnsetType | None = UNSET


class ChatChunk(msgspec.Struct, kw_only=True):
    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | UnsetType = UNSET
    notice: str | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
