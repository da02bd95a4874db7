"""/v1/chat/completions: answers a conversation with one message or several, whole or as a stream."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import UNSET

from ....protocol.messages import Logprobs
from ....protocol.outputs import CompletionOutput
from ....protocol.outputs import ToolCall as FoundCall
from ...receipts.receipt import View
from ...requests.request import guarded
from ..answers.answering import PreparedRequest, answered
from ..answers.generation import Generation, check_asked, pieces
from ..answers.logprobs import chat_logprobs, prompt_logprobs
from ..answers.long_json import LongJson
from ..answers.reply import event, long_event, whole
from ..endpoint import AnyReply, Call
from ..loaded_model import LoadedModel
from ..requests.conversation import as_messages, own_template, rendered
from ..requests.request_parts import chat_parts
from ..requests.tool_choice import CallParser
from ..schemas.chat import (
    AnswerDelta,
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatRequest,
    FunctionCall,
    ToolCall,
)

_NOTHING = AnswerDelta()


class _Answer(NamedTuple):
    output: CompletionOutput
    logprobs: list[Logprobs]


@dataclass(slots=True)
class _Chat(PreparedRequest[ChatRequest]):
    call_parsers: list[CallParser] | None
    view: View
    prompt_logprobs: list[Logprobs] = field(default_factory=list)

    async def whole(self) -> AnyReply:
        answers = [answer async for answer in self.answers(is_streamed=False)]
        threads = self.generation.model.threads.answers
        return await self.generation.call.done(threads, _whole, self, answers, takes_long=self.request.logprobs is True)

    async def events(self) -> AsyncGenerator[bytes]:
        has_begun = [False] * self.generation.params.n
        async with aclosing(self.answers(is_streamed=True)) as answers:
            async for answer, parts in answers:
                is_first = not has_begun[answer.index]
                choice = ChatChunkChoice(index=answer.index, delta=_delta(answer, is_first=is_first))
                if not is_first and choice.delta == _NOTHING and not parts and not answer.finish_reason:
                    continue  # the text may yet become a thought or a call
                has_begun[answer.index] = True
                if answer.finish_reason is not None:
                    choice.finish_reason, choice.stop_reason = answer.finish_reason, answer.stop_reason
                for piece in _chunk(self, choice, parts):
                    yield piece
            if self.request.includes_usage:
                usage = self.generation.tally.usage
                yield event(ChatChunk(id=self.id, created=self.created, model=self.name, choices=[], usage=usage))

    async def answers(self, *, is_streamed: bool) -> AsyncGenerator[_Answer]:
        """Pieces of answers, each with its sample's number."""
        async with aclosing(pieces(self.generation, is_streamed=is_streamed)) as stream:
            async for piece in stream:
                self.prompt_logprobs += piece.prompt_logprobs if not is_streamed else []
                for answer in piece.answers:
                    if self.call_parsers is not None:
                        self.call_parsers[answer.index].take(answer)
                    if not self.request.shows_thoughts:
                        answer.reasoning_content = None
                    yield _Answer(answer, piece.logprobs.get(answer.index, []))
                if is_streamed:
                    self.generation.call.charge.shrink(piece.num_bytes)

    def logprobs(self, parts: list[Logprobs], json: LongJson) -> ChatLogprobs | None:
        if not parts:
            return None
        return chat_logprobs(self.packed(parts), self.request.top_logprobs or 0, json)


async def chat(call: Call, request: ChatRequest) -> AnyReply:
    return await answered(
        call,
        request,
        _prepared,
        lambda threads: threads.templates if request.chat_template is None else threads.request_templates,
        takes_long=True,
    )


def _prepared(call: Call, request: ChatRequest, model: LoadedModel) -> _Chat:
    parts = chat_parts(request, model.defaults, call.salt, model.adapter(request.lora_name))
    params, choice, options = guarded(parts.params), parts.choice, parts.template_options
    check_asked(1, params, call.server.options)
    if request.chat_template is None:
        model.check_template_options(request.chat_template_kwargs, choice.tools)
    if request.continue_final_message:
        options["continue_final_message"] = True
    prompt = rendered(
        model,
        as_messages(request.messages),
        choice.tools,
        options,
        chat_template=own_template(request, is_trusted=call.server.options.trust_request_chat_template),
        adds_generation_prompt=request.add_generation_prompt is not False and not request.continue_final_message,
    )
    generation = Generation(call, model, [prompt], params)
    view = choice.view(hides_thoughts=not request.shows_thoughts)
    return _Chat(generation, request, choice.call_parsers(params.n), view)


def _whole(chat: _Chat, answers: list[_Answer]) -> AnyReply:
    json = LongJson()
    choices = [choice_of(answer, chat.logprobs(parts, json)) for answer, parts in answers]
    completion = ChatCompletion(
        id=chat.id, created=chat.created, model=chat.name, choices=choices, usage=chat.generation.tally.usage
    )
    completion.notice = chat.generation.tally.take_notice()
    if chat.generation.params.prompt_logprobs is not None:
        completion.prompt_logprobs = prompt_logprobs(chat.packed(chat.prompt_logprobs), json)
    completion.receipt = chat.generation.tally.receipt(chat.view)
    return whole(json, completion)


def choice_of(answer: CompletionOutput, logprobs: ChatLogprobs | None) -> ChatChoice:
    """A whole answer."""
    return ChatChoice(
        index=answer.index,
        message=AnswerMessage(
            content=answer.text if answer.text or not answer.tool_calls else None,
            reasoning_content=answer.reasoning_content or UNSET,
            tool_calls=[_whole_call(call) for call in answer.tool_calls] if answer.tool_calls else UNSET,
        ),
        finish_reason=answer.finish_reason,
        stop_reason=answer.stop_reason,
        logprobs=logprobs,
    )


def _whole_call(call: FoundCall) -> ToolCall:
    function = FunctionCall(name=call.function.name or "", arguments=call.function.arguments)
    return ToolCall(id=call.id or "", type="function", function=function)


def _chunk(chat: _Chat, choice: ChatChunkChoice, parts: list[Logprobs]) -> Iterator[bytes]:
    json, options = LongJson(), chat.request.stream_options
    choice.logprobs = chat.logprobs(parts, json)
    notice = chat.generation.tally.take_notice()
    chunk = ChatChunk(id=chat.id, created=chat.created, model=chat.name, choices=[choice], notice=notice)
    if options is not None and options.continuous_usage_stats:
        chunk.usage = chat.generation.tally.usage
    chunk.receipt = chat.generation.tally.receipt(chat.view)
    return long_event(json, chunk)


def _delta(answer: CompletionOutput, *, is_first: bool) -> AnswerDelta:
    delta = AnswerDelta()
    if is_first:
        delta.role = "assistant"
    if answer.text or is_first:
        delta.content = answer.text
    if answer.reasoning_content:
        delta.reasoning_content = answer.reasoning_content
    if answer.tool_calls:
        delta.tool_calls = [_call_delta(call) for call in answer.tool_calls]
    return delta


def _call_delta(call: FoundCall) -> ToolCall:
    """A tool call's delta: its id and name are in its first piece."""
    delta = ToolCall(index=call.index, function=FunctionCall(arguments=call.function.arguments))
    if call.id is not None:
        delta.id, delta.type = call.id, "function"
    if call.function.name is not None:
        delta.function.name = call.function.name
    return delta
