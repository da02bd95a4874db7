"""/v1/messages and /v1/messages/count_tokens: a conversation in Anthropic's form, answered with blocks."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from ....protocol.outputs import CompletionOutput
from ...requests.prompts import RenderedPrompt
from ...requests.request import guarded
from ..answers.answering import PreparedRequest, answered
from ..answers.error_forms import ANTHROPIC
from ..answers.errors import ApiError
from ..answers.generation import Generation, check_asked, parsed_answers
from ..answers.long_json import PIECE_BYTES
from ..answers.message_blocks import MessageBlocks, joined_notices, loop_notice, new_message, whole_message
from ..answers.reply import Reply
from ..endpoint import AnyReply, Call
from ..loaded_model import LoadedModel
from ..requests.conversation import as_messages, rendered
from ..requests.message_parts import continues_last, message_parts
from ..requests.request_parts import RequestParts
from ..requests.tool_choice import CallParser
from ..schemas.messages import Delta, Message, MessageEvent, MessagesRequest, TokenCount
from .tokens import count_of_prompt


@dataclass(slots=True)
class _Message(PreparedRequest[MessagesRequest]):
    call_parsers: list[CallParser] | None
    blocks: MessageBlocks

    async def whole(self) -> AnyReply:
        last = CompletionOutput()
        async for answer in parsed_answers(self.generation, self.call_parsers, is_streamed=False):
            list(self.blocks.feed(answer))
            last = answer
        list(self.blocks.close())
        message = self._whole(last)
        message.notice = joined_notices(message.notice, self.generation.tally.take_notice())
        return Reply.of(message)

    async def events(self) -> AsyncGenerator[bytes]:
        last = None
        async with aclosing(parsed_answers(self.generation, self.call_parsers, is_streamed=True)) as answers:
            async for answer in answers:
                if last is None:
                    begun = [MessageEvent(type="message_start", message=self._begun()), MessageEvent(type="ping")]
                    for piece in _encoded(begun):
                        yield piece
                last = answer
                for piece in _encoded(self.blocks.feed(answer)):
                    yield piece
            for piece in _encoded(self._end(last or CompletionOutput())):
                yield piece

    def _end(self, last: CompletionOutput) -> Iterator[MessageEvent]:
        yield from self.blocks.close()
        message = self._whole(last)
        yield MessageEvent(
            type="message_delta",
            delta=Delta(stop_reason=message.stop_reason, stop_sequence=message.stop_sequence),
            usage=message.usage,
            notice=joined_notices(loop_notice(last, self.request.stops), self.generation.tally.take_notice()),
        )
        yield MessageEvent(type="message_stop")

    def _begun(self) -> Message:
        generation = self.generation
        num_tokens = generation.model.session.num_tokens
        return new_message(self.request, self.blocks, generation.tally.usage, self.id, self.name, num_tokens)

    def _whole(self, last: CompletionOutput) -> Message:
        generation = self.generation
        num_tokens = generation.model.session.num_tokens
        return whole_message(self.request, self.blocks, last, generation.tally.usage, self.id, self.name, num_tokens)

    def failed(self, error: ApiError) -> bytes:
        return b"event: error\ndata: " + ANTHROPIC.body(error) + b"\n\n"

    @property
    def ending(self) -> bytes:
        return b""


async def messages(call: Call, request: MessagesRequest) -> AnyReply:
    return await answered(call, request, _prepared, lambda threads: threads.templates, takes_long=True)


def _prepared(call: Call, request: MessagesRequest, model: LoadedModel) -> _Message:
    parts = message_parts(request, model.defaults, call.salt, model.adapter(None))
    params = guarded(parts.params)
    check_asked(1, params, call.server.options)
    prompt = _prompt(request, parts, model)
    generation = Generation(call, model, [prompt], params)
    return _Message(generation, request, parts.choice.call_parsers(1), MessageBlocks(request))


def _prompt(request: MessagesRequest, parts: RequestParts, model: LoadedModel) -> RenderedPrompt:
    model.check_template_options(request.chat_template_kwargs, parts.choice.tools)
    options, continues = parts.template_options, continues_last(parts.messages)
    if continues:
        options = {**options, "continue_final_message": True}
    messages = as_messages(parts.messages)
    return rendered(model, messages, parts.choice.tools, options, adds_generation_prompt=not continues)


def _encoded(events: Iterable[MessageEvent]) -> Iterator[bytes]:
    """Encoded events: short ones together, a long one by itself."""
    encoded = b""
    for event in events:
        encoded += b"event: " + event.type.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
        if len(encoded) >= PIECE_BYTES:
            yield encoded
            encoded = b""
    if encoded:
        yield encoded


async def count_tokens(call: Call, request: MessagesRequest) -> AnyReply:
    async with call.model(request.model) as model:
        threads = model.threads.media if model.sees else model.threads.templates
        return await call.done(threads, _counted, call, request, model, takes_long=True)


def _counted(call: Call, request: MessagesRequest, model: LoadedModel) -> Reply:
    parts = message_parts(request, model.defaults, call.salt, None)
    prompt = _prompt(request, parts, model)
    return Reply.of(TokenCount(input_tokens=count_of_prompt(call, prompt, model)))
