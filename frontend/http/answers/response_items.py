"""A response of /v1/responses, and its output items while they grow: reasoning, message and calls, in order of arrival.

Items produce the events that OpenAI's clients expect around each of them.
"""

import itertools
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ....protocol.outputs import CompletionOutput, ToolCall
from ....protocol.parameters.sampling import SamplingParams
from ..schemas.responses import (
    FlatChoice,
    Incomplete,
    InputDetails,
    OutputDetails,
    OutputItem,
    Response,
    ResponseEvent,
    ResponsesRequest,
    ResponsesUsage,
    TextPart,
)
from ..schemas.sampling import Usage


def new_response(
    request: ResponsesRequest, params: SamplingParams, response_id: str, created: int, model: str
) -> Response:
    return Response(
        id=response_id,
        created_at=created,
        model=request.model or model,
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


def finish_response(
    response: Response, items: "ResponseItems", reason: str | None, usage: Usage, num_tokens: Callable[[str], int]
) -> None:
    """Fill in what is known at the end. The marks around a thought aren't counted, since they aren't part of it."""
    response.output = items.done
    response.status = "incomplete" if reason == "length" else "completed"
    response.incomplete_details = Incomplete(reason="max_output_tokens") if reason == "length" else None
    response.usage = ResponsesUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=InputDetails(cached_tokens=usage.prompt_tokens_details.cached_tokens),
        output_tokens_details=OutputDetails(reasoning_tokens=num_tokens(items.thought) if items.thought else 0),
    )


class ResponseItems:
    def __init__(self, digits: str | None = None) -> None:
        """Ids end with `digits` and a number, by default with random ones."""
        self._digits = digits
        self._numbers = itertools.count()
        self.done: list[OutputItem] = []
        self._open: OutputItem | None = None
        self._call_index = -1

    @property
    def thought(self) -> str:
        return "".join(_part(item).text for item in self.done if item.type == "reasoning")

    def feed(self, answer: CompletionOutput) -> Iterator[ResponseEvent]:
        """The events for a new part of the answer."""
        if answer.reasoning_content:
            yield from self._text("reasoning", answer.reasoning_content)
        if answer.text:
            yield from self._text("message", answer.text)
        for call in answer.tool_calls or ():
            yield from self._call(call)

    def close(self, status: Literal["completed", "incomplete"] = "completed") -> Iterator[ResponseEvent]:
        """End the open item."""
        item, self._open = self._open, None
        if item is None:
            return
        item.status = status
        if item.type == "function_call":
            yield self._event("function_call_arguments.done", item, name=item.name, arguments=item.arguments)
        else:
            part = _part(item)
            yield self._event(f"{part.type}.done", item, text=part.text, content_index=0, logprobs=_logprobs(item))
            yield self._event("content_part.done", item, part=part, content_index=0)
        yield ResponseEvent(type="response.output_item.done", item=item, output_index=len(self.done))
        self.done.append(item)

    def _text(self, kind: str, text: str) -> Iterator[ResponseEvent]:
        item = self._open
        if item is None or item.type != kind:
            yield from self.close()
            item = self._empty(kind)
            yield self._opened(item)
            part = msgspec.structs.replace(_part(item))
            yield self._event("content_part.added", item, part=part, content_index=0)
        part = _part(item)
        part.text += text
        yield self._event(f"{part.type}.delta", item, delta=text, content_index=0, logprobs=_logprobs(item))

    def _call(self, call: ToolCall) -> Iterator[ResponseEvent]:
        item = self._open
        if item is None or item.type != "function_call" or call.index != self._call_index:
            yield from self.close()
            self._call_index = call.index
            item = OutputItem(
                id=self._id("fc"), type="function_call", status="in_progress", call_id=call.id or self._id("call"),
                name=call.function.name or "", arguments="",
            )  # fmt: skip
            yield self._opened(item)
        more = call.function.arguments
        item.arguments = (item.arguments or "") + more
        if more:
            yield self._event("function_call_arguments.delta", item, delta=more)

    def _opened(self, item: OutputItem) -> ResponseEvent:
        self._open = item
        shown = msgspec.structs.replace(item)
        if item.type != "function_call":
            shown.content = []
        return ResponseEvent(type="response.output_item.added", item=shown, output_index=len(self.done))

    def _event(self, kind: str, item: OutputItem, **fields: Any) -> ResponseEvent:
        """An event of the open item."""
        return ResponseEvent(type=f"response.{kind}", item_id=item.id, output_index=len(self.done), **fields)

    def _empty(self, kind: str) -> OutputItem:
        if kind == "reasoning":
            content = [TextPart(text="", type="reasoning_text")]
            return OutputItem(id=self._id("rs"), type="reasoning", status="in_progress", summary=[], content=content)
        content = [TextPart(text="", type="output_text", annotations=[], logprobs=[])]
        return OutputItem(id=self._id("msg"), type="message", status="in_progress", role="assistant", content=content)

    def _id(self, kind: str) -> str:
        digits = secrets.token_hex(12) if self._digits is None else f"{self._digits}{next(self._numbers) or ''}"
        return f"{kind}_{digits}"


def _part(item: OutputItem) -> TextPart:
    """The only part of a reasoning item or a message."""
    [part] = item.content or []
    return part


def _logprobs(item: OutputItem) -> list[Any] | UnsetType:
    return [] if item.type == "message" else UNSET
