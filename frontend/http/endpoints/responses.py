"""/v1/responses: OpenAI's newer form of a conversation, answered with items, whole or as events. Nothing is kept."""

import itertools
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ....protocol.outputs import CompletionOutput
from ....protocol.parameters.sampling import SamplingParams
from ...requests.request import guarded
from ..answers.answering import PreparedRequest, answered
from ..answers.errors import ApiError
from ..answers.generation import Generation, check_asked, pieces
from ..answers.long_json import PIECE_BYTES
from ..answers.reply import Reply
from ..answers.response_items import ResponseItems
from ..endpoint import AnyReply, Call
from ..loaded_model import LoadedModel
from ..requests.conversation import rendered
from ..requests.parameters import sampling_params
from ..requests.thinking import thinking_of
from ..requests.tool_choice import CallParser, ToolChoice
from ..schemas.chat import Called, CalledFunction, ChatMessage, ContentPart
from ..schemas.responses import (
    FlatChoice,
    FlatTool,
    Incomplete,
    InputDetails,
    InputItem,
    InputPart,
    OutputDetails,
    Response,
    ResponseEvent,
    ResponsesRequest,
    ResponsesUsage,
)

_KEPT_NOWHERE = ("previous_response_id", "conversation", "background", "prompt")
_TEXT_PARTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


@dataclass(slots=True)
class _Responses(PreparedRequest[ResponsesRequest]):
    call_parsers: list[CallParser] | None
    response: Response
    items: ResponseItems = field(default_factory=ResponseItems)

    async def whole(self) -> AnyReply:
        reason = None
        async for answer in self.answers(is_streamed=False):
            list(self.items.feed(answer))
            list(self.items.close("incomplete" if answer.finish_reason == "length" else "completed"))
            reason = answer.finish_reason
        return Reply.of(self.finished(reason))

    async def events(self) -> AsyncGenerator[bytes]:
        numbers = itertools.count()
        reason, has_begun = None, False
        async with aclosing(self.answers(is_streamed=True)) as answers:
            async for answer in answers:
                if not has_begun:
                    begun = [ResponseEvent(type=f"response.{word}", response=self.response)
                             for word in ("created", "in_progress")]  # fmt: skip
                    for piece in _encoded(begun, numbers):
                        yield piece
                    has_begun = True
                reason = answer.finish_reason or reason
                for piece in _encoded(self.items.feed(answer), numbers):
                    yield piece
            closing = self.items.close("incomplete" if reason == "length" else "completed")
            for piece in _encoded(closing, numbers):
                yield piece
            response = self.finished(reason)
            for piece in _encoded([ResponseEvent(type=f"response.{response.status}", response=response)], numbers):
                yield piece

    def failed(self, error: ApiError) -> bytes:
        code = str(error.code or error.status)
        event = ResponseEvent(type="error", code=code, message=str(error), param=error.param)
        return b"".join(_encoded([event], itertools.count(2**20)))

    @property
    def ending(self) -> bytes:
        return b""

    async def answers(self, *, is_streamed: bool) -> AsyncGenerator[CompletionOutput]:
        async with aclosing(pieces(self.generation, is_streamed=is_streamed)) as stream:
            async for piece in stream:
                for answer in piece.answers:
                    if self.call_parsers is not None:
                        self.call_parsers[0].take(answer)
                    yield answer

    def finished(self, reason: str | None) -> Response:
        """The whole response for the client, at the end."""
        usage, response = self.generation.tally.usage, self.response
        response.output = self.items.done
        response.status = "incomplete" if reason == "length" else "completed"
        response.incomplete_details = Incomplete(reason="max_output_tokens") if reason == "length" else None
        response.usage = ResponsesUsage(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
            input_tokens_details=InputDetails(cached_tokens=usage.prompt_tokens_details.cached_tokens),
            output_tokens_details=OutputDetails(reasoning_tokens=self._thought_tokens()),
        )
        return response

    def _thought_tokens(self) -> int:
        """Tokens of the reasoning's text. The marks around it are not counted, since they aren't part of that text."""
        if not (thought := self.items.thought):
            return 0
        return len(self.generation.model.tokenizer.encode(thought, add_special_tokens=False))


async def responses(call: Call, request: ResponsesRequest) -> AnyReply:
    for name in _KEPT_NOWHERE:
        if getattr(request, name):
            raise ApiError(400, f"{name}: this server keeps nothing; send the whole conversation.", param=name)
    return await answered(call, request, _prepared, lambda threads: threads.templates, takes_long=True)


def _prepared(call: Call, request: ResponsesRequest, model: LoadedModel) -> _Responses:
    tools = [_nested(tool) for tool in request.tools or ()]
    given = request.tool_choice
    choice = ToolChoice.of(given.chosen if isinstance(given, FlatChoice) else given, tools)
    thinking = thinking_of(request)
    params = sampling_params(
        request,
        model.defaults,
        call.salt,
        max_tokens=request.max_output_tokens,
        call_shape=choice.shape,
        reasoning_max_tokens=thinking.max_tokens,
        response_format=_response_format(request),
        lora_name=model.adapter(None),
    )
    params = guarded(params)
    check_asked(1, params, call.server.options)
    model.check_template_options(request.chat_template_kwargs, choice.tools)
    prompt = rendered(model, list(_conversation(request)), choice.tools, thinking.template_options)
    return _Responses(
        Generation(call, model, [prompt], params),
        request,
        choice.call_parsers(1),
        _response(call, request, model, params),
    )


def _response(call: Call, request: ResponsesRequest, model: LoadedModel, params: SamplingParams) -> Response:
    return Response(
        id=call.active_request.id,
        created_at=int(time.time()),
        model=request.model or model.name,
        status="in_progress",
        output=[],
        instructions=request.instructions,
        metadata=request.metadata or {},
        parallel_tool_calls=request.parallel_tool_calls is not False,
        temperature=params.temperature,
        top_p=params.top_p,
        max_output_tokens=request.max_output_tokens,
        tool_choice=_told(request.tool_choice) if request.tool_choice is not None else "auto",
        tools=[{"strict": None, **msgspec.to_builtins(tool)} for tool in request.tools or ()],
    )


def _told(choice: str | FlatChoice) -> Any:
    if isinstance(choice, str):
        return choice
    return {name: value for name, value in msgspec.to_builtins(choice).items() if value is not None}


def _encoded(events: Iterable[ResponseEvent], numbers: "itertools.count[int]") -> Iterator[bytes]:
    """Encoded events: short ones together, a long one by itself."""
    encoded = b""
    for event in events:
        event.sequence_number = next(numbers)
        encoded += b"event: " + event.type.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
        if len(encoded) >= PIECE_BYTES:
            yield encoded
            encoded = b""
    if encoded:
        yield encoded


# --- the input, as a conversation -------------------------------------------------------------------------------------


def _conversation(request: ResponsesRequest) -> Iterable[ChatMessage]:
    if request.instructions:
        yield ChatMessage(role="system", content=request.instructions)
    if isinstance(request.input, str):
        yield ChatMessage(role="user", content=request.input)
        return
    turn = _Turn()
    for item in request.input:
        if not turn.takes(item):
            yield from turn.messages()
            turn = _Turn()
        match item.type:
            case "function_call" | "reasoning":
                turn.add(item)
            case None | "message" if item.role == "assistant":
                turn.content = _content(item.content, "content")
            case None | "message":
                yield ChatMessage(role=_role(item), content=_content(item.content, "content"))
            case "function_call_output":
                yield ChatMessage(role="tool", content=_content(item.output, "output"), tool_call_id=item.call_id)
            case other:
                raise ApiError(400, f"input: an item of the type {other!r} is not supported.", param="input")
    yield from turn.messages()


class _Turn:
    """Items of one turn of the model: a thought, a text, calls, in this order.

    With calls they are one message: the thought stays with the calls that it led to, and the template drops past ones.
    A thought that led to no call is not shown again.
    """

    def __init__(self) -> None:
        self.content: str | list[ContentPart] | None = None
        self._thought: str | None = None
        self._calls: list[Called] = []

    def takes(self, item: InputItem) -> bool:
        if item.type == "function_call":
            return True
        is_begun = bool(self._calls) or self.content is not None
        is_text = item.type in (None, "message") and item.role == "assistant"
        return not is_begun and (is_text or item.type == "reasoning")

    def add(self, item: InputItem) -> None:
        if item.type == "function_call":
            function = CalledFunction(name=item.name or "", arguments=item.arguments or "{}")
            self._calls.append(Called(function=function, id=item.call_id))
        elif item.content is not None:
            parts = _content(item.content, "content")
            self._thought = parts if isinstance(parts, str) else "".join(part.text or "" for part in parts)

    def messages(self) -> Iterable[ChatMessage]:
        if self._calls:
            yield ChatMessage(
                role="assistant",
                content="" if self.content is None else self.content,
                reasoning_content=self._thought,
                tool_calls=self._calls,
            )
        elif self.content is not None:
            yield ChatMessage(role="assistant", content=self.content)


def _role(item: InputItem) -> str:
    if item.role is None:
        raise ApiError(400, "input: a message needs a role.", param="input")
    return "system" if item.role == "developer" else item.role


def _content(content: str | list[InputPart] | None, name: str) -> str | list[ContentPart]:
    if content is None:
        raise ApiError(400, f"input: an item has no {name}, which must be text or a list of text parts.", param="input")
    if isinstance(content, str):
        return content
    return [_part(part) for part in content]


def _part(part: InputPart) -> ContentPart:
    if part.type in _TEXT_PARTS:
        return ContentPart(type="text", text=part.text)
    if part.type == "refusal":
        return ContentPart(type="refusal", refusal=part.refusal)
    return ContentPart(type=part.type, image_url=part.image_url, detail=part.detail, file_id=part.file_id)


def _nested(tool: FlatTool) -> dict[str, Any]:
    described = {name: value for name, value in msgspec.to_builtins(tool).items() if value is not None}
    described.pop("type")
    return {"type": "function", "function": described}


def _response_format(request: ResponsesRequest) -> dict[str, Any] | None:
    form = request.text.format if request.text is not None else None
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema", "schema": schema} if schema is not None:
            return {"type": "json_schema", "json_schema": {name: each for name, each in form.items() if name != "type"}}
        case {"type": "json_object" | "structural_tag"}:
            return form
    raise ApiError(
        400,
        'text.format must be {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "schema": …} or '
        '{"type": "structural_tag", …}.',
    )
