"""/v1/responses: OpenAI's newer form of a conversation, answered with items, whole or as events. Nothing is kept."""

import itertools
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field

from ...receipts.receipt import View
from ..answers.answering import PreparedRequest, answered, generation_of
from ..answers.errors import ApiError
from ..answers.generation import parsed_answers
from ..answers.reply import Reply, named_events
from ..answers.response_items import ResponseItems, finish_response, new_response
from ..endpoint import AnyReply, Call
from ..loaded_model import LoadedModel
from ..requests.request_parts import response_parts
from ..requests.tool_choice import CallParser
from ..schemas.responses import Response, ResponseEvent, ResponsesRequest


@dataclass(slots=True)
class _Responses(PreparedRequest[ResponsesRequest]):
    call_parsers: list[CallParser] | None
    response: Response
    view: View
    items: ResponseItems = field(default_factory=ResponseItems)

    async def whole(self) -> AnyReply:
        reason = None
        async for answer in parsed_answers(self.generation, self.call_parsers, is_streamed=False):
            list(self.items.feed(answer))
            list(self.items.close("incomplete" if answer.finish_reason == "length" else "completed"))
            reason = answer.finish_reason
        return Reply.of(self.finished(reason))

    async def events(self) -> AsyncGenerator[bytes]:
        numbers = itertools.count()
        reason, has_begun = None, False
        async with aclosing(parsed_answers(self.generation, self.call_parsers, is_streamed=True)) as answers:
            async for answer in answers:
                if not has_begun:
                    begun = [ResponseEvent(type=f"response.{word}", response=self.response)
                             for word in ("created", "in_progress")]  # fmt: skip
                    for piece in _numbered(begun, numbers):
                        yield piece
                    has_begun = True
                reason = answer.finish_reason or reason
                for piece in _numbered(self.items.feed(answer), numbers):
                    yield piece
            closing = self.items.close("incomplete" if reason == "length" else "completed")
            for piece in _numbered(closing, numbers):
                yield piece
            response = self.finished(reason)
            for piece in _numbered([ResponseEvent(type=f"response.{response.status}", response=response)], numbers):
                yield piece

    def failed(self, error: ApiError) -> bytes:
        code = str(error.code or error.status)
        event = ResponseEvent(type="error", code=code, message=str(error), param=error.param)
        return b"".join(_numbered([event], itertools.count(2**20)))

    @property
    def ending(self) -> bytes:
        return b""

    def finished(self, reason: str | None) -> Response:
        """Complete the response at the end."""
        generation = self.generation
        num_tokens = generation.model.session.num_tokens
        finish_response(self.response, self.items, reason, generation.tally.usage, num_tokens)
        self.response.notice = generation.tally.take_notice()
        self.response.receipt = generation.tally.receipt(self.view)
        return self.response


async def responses(call: Call, request: ResponsesRequest) -> AnyReply:
    return await answered(call, request, _prepared, lambda threads: threads.templates, takes_long=True)


def _prepared(call: Call, request: ResponsesRequest, model: LoadedModel) -> _Responses:
    parts = response_parts(request, model.defaults, call.salt, model.adapter(None))
    generation = generation_of(call, model, request, parts)
    response = new_response(request, generation.params, call.active_request.id, int(time.time()), model.name)
    view = parts.choice.view(hides_thoughts=False)
    return _Responses(generation, request, parts.choice.call_parsers(1), response, view)


def _numbered(events: Iterable[ResponseEvent], numbers: "itertools.count[int]") -> Iterator[bytes]:
    def each() -> Iterator[ResponseEvent]:
        for event in events:
            event.sequence_number = next(numbers)
            yield event

    return named_events(each())
