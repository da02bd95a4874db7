"""Bodies of /v1/messages, Anthropic's form of a conversation: messages are made of blocks, in both directions."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .foreign_fields import OpenBody
from .sampling import TAKEN_WITH_CHOICES, Count, Effort, FreeForm, SamplingRequest

_WITHOUT_EFFECT = Meta(description="without effect")


class Source(msgspec.Struct, kw_only=True):
    """Where a picture's or a document's content is."""

    type: str
    media_type: Annotated[str, Meta(max_length=128)] | None = None
    data: str | None = None
    url: str | None = None
    content: "str | list[InputBlock] | None" = None


class InputBlock(msgspec.Struct, kw_only=True):
    """A text, picture, document, thought, call or result of a call, by its `type`. Fields such as `cache_control` have
    no effect."""

    type: str
    text: str | None = None
    source: str | Source | None = None
    title: str | None = None
    context: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: FreeForm | None = None
    tool_use_id: str | None = None
    tool_name: str | None = None
    content: "str | list[InputBlock] | None" = None
    is_error: bool | None = None


class InputMessage(msgspec.Struct, kw_only=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[InputBlock]


class MessageTool(msgspec.Struct, kw_only=True):
    elsewhere: ClassVar = {"parameters": "here it is input_schema", "function": "here its fields are those of the tool"}

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    type: str | None = None
    description: str | None = None
    input_schema: FreeForm | None = None
    strict: bool | None = None
    cache_control: Annotated[Any, _WITHOUT_EFFECT] = None
    eager_input_streaming: Annotated[Any, _WITHOUT_EFFECT] = None


class MessageToolChoice(msgspec.Struct, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessageThinking(msgspec.Struct, kw_only=True):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Count | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(msgspec.Struct, kw_only=True):
    type: Literal["json_schema"]
    schema: FreeForm


class OutputConfig(msgspec.Struct, kw_only=True):
    effort: Effort | None = None
    format: OutputFormat | None = None


_OF_CHATS = dict.fromkeys(
    (*TAKEN_WITH_CHOICES, "logprobs", "top_logprobs", "max_completion_tokens", "parallel_tool_calls"),
    "/v1/chat/completions takes it",
)


class MessagesRequest(SamplingRequest, OpenBody, kw_only=True, forbid_unknown_fields=False, dict=True):
    """The same body serves /v1/messages/count_tokens."""

    elsewhere = _OF_CHATS
    open_parts = {
        "tools": MessageTool, "tool_choice": MessageToolChoice, "thinking": MessageThinking,
        "output_config": OutputConfig,
    }  # fmt: skip
    form_of_tools = '{"name": …, "description": …, "input_schema": {…}}'

    messages: Annotated[list[InputMessage], Meta(min_length=1)]
    system: str | list[InputBlock] | None = None
    max_tokens: Count | None = None
    stop_sequences: list[str] | None = None
    tools: list[MessageTool] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: MessageThinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    chat_template_kwargs: FreeForm | None = None
    cache_control: Annotated[Any, _WITHOUT_EFFECT] = None
    inference_geo: Annotated[Any, _WITHOUT_EFFECT] = None
    speed: Annotated[Any, _WITHOUT_EFFECT] = None
    diagnostics: Annotated[Any, _WITHOUT_EFFECT] = None
    betas: Annotated[Any, _WITHOUT_EFFECT] = None
    anthropic_version: Annotated[Any, _WITHOUT_EFFECT] = None
    user_profile_id: Annotated[Any, _WITHOUT_EFFECT] = None
    workspace_id: Annotated[Any, _WITHOUT_EFFECT] = None

    @property
    def stops(self) -> list[str]:
        """The stop strings, under either name."""
        given = self.stop_sequences or self.stop or []
        return [given] if isinstance(given, str) else given

    @property
    def shows_thoughts(self) -> bool:
        return self.thinking is None or self.thinking.display != "omitted"


class Block(msgspec.Struct, kw_only=True):
    """A block of an answer; its `type` decides which of the fields it has."""

    type: Literal["text", "thinking", "tool_use"]
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    input: FreeForm | UnsetType = UNSET


class ThinkingDetails(msgspec.Struct, kw_only=True):
    thinking_tokens: int


class MessageUsage(msgspec.Struct, kw_only=True):
    """`input_tokens` are those of the prompt that were not in the prefix cache."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0
    output_tokens_details: ThinkingDetails | None = None
    service_tier: Literal["standard"] = "standard"


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class Message(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    usage: MessageUsage
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    notice: str | UnsetType = UNSET  # about fields that had no effect, or about processes that died


class Delta(msgspec.Struct, kw_only=True):
    type: Literal["text_delta", "thinking_delta", "signature_delta", "input_json_delta"] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    partial_json: str | UnsetType = UNSET
    stop_reason: StopReason | UnsetType | None = UNSET
    stop_sequence: str | UnsetType | None = UNSET


class MessageEvent(msgspec.Struct, kw_only=True):
    """A piece of a stream; its `type` decides which of the fields it has."""

    type: str
    message: Message | UnsetType = UNSET
    index: int | UnsetType = UNSET
    content_block: Block | UnsetType = UNSET
    delta: Delta | UnsetType = UNSET
    usage: MessageUsage | UnsetType = UNSET
    notice: str | UnsetType = UNSET


class TokenCount(msgspec.Struct, kw_only=True):
    input_tokens: int


class AnthropicFault(msgspec.Struct, kw_only=True):
    type: str
    message: str


class AnthropicError(msgspec.Struct, kw_only=True):
    type: Literal["error"] = "error"
    error: AnthropicFault
    request_id: str
