"""/v1/messages and /v1/messages/count_tokens: a conversation in Anthropic's form, answered with blocks."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass

from ....protocol.outputs import CompletionOutput
from ..answers.answering import PreparedRequest, answered, generation_of, or_silence, prompt_of
from ..answers.error_forms import ANTHROPIC
from ..answers.errors import ApiError
from ..answers.generation import parsed_answers
from ..answers.message_blocks import MessageBlocks, joined_notices, loop_notice, new_message, whole_message
from ..answers.reply import Reply, named_events
from ..endpoint import AnyReply, Call
from ..loaded_model import LoadedModel
from ..requests.message_parts import continues_last, message_parts
from ..requests.tool_choice import CallParser
from ..schemas.messages import Delta, Message, MessageEvent, MessagesRequest, TokenCount
from .tokens import count_of_prompt

# A stream says that it is alive after so many seconds without another event.
PING_SECONDS = 10.0


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
        last, has_begun = CompletionOutput(), False
        answers = parsed_answers(self.generation, self.call_parsers, is_streamed=True)
        async with aclosing(or_silence(answers, PING_SECONDS)) as news:
            async for answer in news:
                if not has_begun and (answer is not None or self._num_prompt_tokens):
                    has_begun = True
                    begun = [MessageEvent(type="message_start", message=self._begun()), MessageEvent(type="ping")]
                    for piece in named_events(begun):
                        yield piece
                elif answer is None:
                    yield b"".join(named_events([MessageEvent(type="ping")]))
                if answer is not None:
                    last = answer
                    for piece in named_events(self.blocks.feed(answer)):
                        yield piece
            for piece in named_events(self._end(last)):
                yield piece

    @property
    def _num_prompt_tokens(self) -> int:
        """Tokens of the prompt, as soon as it has been sent to the engine."""
        return sum(len(each.request.prompt.token_ids) // 4 for each in self.generation.call.active_request.prompts)

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
        num_tokens, usage = generation.model.session.num_tokens, generation.tally.usage
        if not usage.prompt_tokens:  # it is still being computed; what was cached is told at the end
            usage.prompt_tokens = self._num_prompt_tokens
        return new_message(self.request, self.blocks, usage, self.id, self.name, num_tokens)

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
    generation = generation_of(call, model, request, parts, continues=continues_last(parts.messages))
    return _Message(generation, request, parts.choice.call_parsers(1), MessageBlocks(request))


async def count_tokens(call: Call, request: MessagesRequest) -> AnyReply:
    async with call.model(request.model) as model:
        threads = model.threads.media if model.sees else model.threads.templates
        return await call.done(threads, _counted, call, request, model, takes_long=True)


def _counted(call: Call, request: MessagesRequest, model: LoadedModel) -> Reply:
    parts = message_parts(request, model.defaults, call.salt, None)
    prompt = prompt_of(model, request, parts, continues=continues_last(parts.messages))
    return Reply.of(TokenCount(input_tokens=count_of_prompt(call, prompt, model)))
