"""Bodies of /v1/responses, OpenAI's newer form of a conversation. Nothing is kept between two requests."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ....protocol.errors import RequestError
from .chat import AllowedTool, AllowedTools, ChosenFunction, Reasoning, ThinkingOptions
from .sampling import Count, Effort, FreeForm, Ranked, SamplingRequest


class InputPart(msgspec.Struct, kw_only=True):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    data: Annotated[Any, Meta(description="of an input_json: an object, or a list of them")] = None


class InputItem(msgspec.Struct, kw_only=True):
    """A message, a call, the output of a call, or a thought, by its `type`; without one, a message."""

    type: str | None = None
    role: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None


class FlatTool(msgspec.Struct, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    type: Literal["function"] = "function"
    description: str | None = None
    parameters: FreeForm | None = None
    strict: bool | None = None


class FlatAllowed(msgspec.Struct, kw_only=True):
    name: str
    type: Literal["function"] = "function"


class FlatChoice(msgspec.Struct, kw_only=True):
    type: Literal["function", "allowed_tools"] = "function"
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[FlatAllowed] | None = None

    @property
    def chosen(self) -> ChosenFunction | AllowedTools:
        """Convert the choice to the form that chats have."""
        if self.type == "function" and self.name is not None:
            return ChosenFunction(name=self.name)
        if self.type == "allowed_tools" and self.mode is not None and self.tools is not None:
            allowed = [AllowedTool(function=ChosenFunction(name=each.name)) for each in self.tools]
            return AllowedTools(tools=allowed, mode=self.mode)
        raise RequestError(f"tool_choice needs {'name' if self.type == 'function' else 'mode and tools'}.")


class TextOptions(msgspec.Struct, kw_only=True):
    format: FreeForm | None = None
    verbosity: str | None = None  # without effect


class ReasoningOptions(Reasoning, kw_only=True, forbid_unknown_fields=True):
    context: str | None = None  # without effect
    mode: str | None = None  # without effect


class ResponsesRequest(SamplingRequest, kw_only=True, forbid_unknown_fields=True):
    input: str | Annotated[list[InputItem], Meta(min_length=1)]
    instructions: str | None = None
    stream_options: FreeForm | None = None
    max_output_tokens: Count | None = None
    top_logprobs: Ranked | None = None
    tools: list[FlatTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FlatChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning_effort: Effort | None = None
    enable_thinking: bool | None = None
    think: Annotated[bool | None, Meta(description="another name of enable_thinking")] = None
    thinking: ThinkingOptions | None = None
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: FreeForm | None = None
    truncation: Annotated[
        Literal["disabled", "auto"] | None, Meta(description="without effect: a prompt that is too long is refused")
    ] = None
    include: list[str] | None = None  # without effect
    background: Annotated[bool | None, Meta(description="refused: nothing is stored")] = None
    previous_response_id: Annotated[str | None, Meta(description="refused: nothing is stored")] = None
    prompt: Annotated[FreeForm | None, Meta(description="refused: nothing is stored")] = None
    conversation: Annotated[str | FreeForm | None, Meta(description="refused: nothing is stored")] = None


class TextPart(msgspec.Struct, kw_only=True):
    """Text of a message (`output_text`) or of a thought (`reasoning_text`)."""

    text: str
    type: Literal["output_text", "reasoning_text"]
    annotations: list[Any] | UnsetType = UNSET
    logprobs: list[Any] | UnsetType = UNSET


Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputItem(msgspec.Struct, kw_only=True):
    """A message, a thought (`reasoning`) or a call (`function_call`)."""

    id: str
    type: Literal["message", "reasoning", "function_call"]
    status: Status = "completed"
    role: Literal["assistant"] | UnsetType = UNSET
    content: list[TextPart] | UnsetType = UNSET
    summary: list[Any] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class InputDetails(msgspec.Struct, kw_only=True):
    cached_tokens: int = 0


class OutputDetails(msgspec.Struct, kw_only=True):
    reasoning_tokens: int = 0


class ResponsesUsage(msgspec.Struct, kw_only=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails
    output_tokens_details: OutputDetails


class Incomplete(msgspec.Struct, kw_only=True):
    reason: str


class Failed(msgspec.Struct, kw_only=True):
    code: str
    message: str


class Response(msgspec.Struct, kw_only=True):
    id: str
    created_at: int
    model: str
    status: Status
    output: list[OutputItem]
    object: Literal["response"] = "response"
    usage: ResponsesUsage | None = None
    error: Failed | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None = None
    metadata: FreeForm = {}
    parallel_tool_calls: bool = True
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    tool_choice: Any = "auto"
    tools: list[Any] = []
    previous_response_id: None = None
    store: Literal[False] = False
    notice: str | UnsetType = UNSET  # if the model's processes died: how the answer goes on
    receipt: str | UnsetType = UNSET


class ResponseEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A piece of a stream; its `type` decides which of the fields it has."""

    type: str
    sequence_number: int | UnsetType = UNSET
    response: Response | UnsetType = UNSET
    item: OutputItem | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    part: TextPart | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    logprobs: list[Any] | UnsetType = UNSET
    code: str | UnsetType | None = UNSET
    message: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET
