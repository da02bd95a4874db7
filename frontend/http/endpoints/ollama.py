"""/api/chat and /api/generate: answers in Ollama's form, as lines of JSON or as a whole.

A request without a question loads its model, or unloads it if `keep_alive` is 0.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from ....protocol.errors import RequestError
from ....protocol.messages import Logprobs
from ....protocol.outputs import CompletionOutput, RequestOutput, ToolCall
from ...requests.request import guarded
from ..answers.answering import PreparedRequest, answered, generation_of
from ..answers.error_forms import OLLAMA
from ..answers.errors import ApiError, as_api_error
from ..answers.generation import Generation, check_asked, check_length, pieces
from ..answers.logprobs import chat_logprobs
from ..answers.long_json import LongJson
from ..answers.message_blocks import arguments_of, joined_notices, loop_notice
from ..answers.reply import Reply, whole
from ..endpoint import AnyReply, Call
from ..loaded_model import LoadedModel
from ..requests.ollama_parts import Translated, in_their_words, translated_chat, translated_prompt
from ..requests.request_parts import chat_parts, completion_params
from ..requests.tool_choice import CallParser
from ..schemas.completions import CompletionRequest
from ..schemas.ollama import (
    OllamaAnswerMessage,
    OllamaCall,
    OllamaChatPiece,
    OllamaChatRequest,
    OllamaFunction,
    OllamaGeneratePiece,
    OllamaGenerateRequest,
    OllamaPiece,
    OllamaRequest,
)

_LATEST = ":latest"
_SECOND = 10**9  # nanoseconds
RequestT = TypeVar("RequestT", bound=OllamaRequest)


class _WholeCalls:
    """Joins the pieces of calls, since Ollama's clients get each call as a whole."""

    def __init__(self) -> None:
        self._begun: ToolCall | None = None

    def add(self, calls: list[ToolCall] | None) -> list[OllamaCall]:
        """Return the calls that have ended because another one began."""
        ended: list[OllamaCall] = []
        for call in calls or ():
            if self._begun is not None and self._begun.index == call.index:
                self._begun.function.arguments += call.function.arguments
                continue
            ended += self.end()
            self._begun = call
        return ended

    def end(self) -> list[OllamaCall]:
        call, self._begun = self._begun, None
        if call is None:
            return []
        function = OllamaFunction(name=call.function.name or "", arguments=arguments_of(call.function.arguments))
        return [OllamaCall(id=call.id, function=function)]


@dataclass(slots=True)
class _Answer(PreparedRequest[RequestT]):
    call_parsers: list[CallParser] | None
    notice: str
    top_logprobs: int
    calls: _WholeCalls = field(default_factory=_WholeCalls)
    loaded: float = field(init=False)  # seconds after its arrival: when the model was loaded and the prompt rendered
    first_token: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.loaded = self.generation.call.active_request.seconds

    @abstractmethod
    def piece(self, answer: CompletionOutput, calls: list[OllamaCall]) -> OllamaPiece: ...

    async def whole(self) -> AnyReply:
        json, piece = LongJson(), self.piece(CompletionOutput(), [])
        async with aclosing(self._answers(is_streamed=False)) as answers:
            async for answer, logprobs in answers:
                calls = [*self.calls.add(answer.tool_calls), *self.calls.end()]
                piece = self.piece(answer, calls)
                self._add_logprobs(piece, logprobs, json)
                self._finish(piece, answer)
        return whole(json, piece)

    async def events(self) -> AsyncGenerator[bytes]:
        last = CompletionOutput()
        async with aclosing(self._answers(is_streamed=True)) as answers:
            async for answer, logprobs in answers:
                last, calls, json = answer, self.calls.add(answer.tool_calls), LongJson()
                calls += self.calls.end() if answer.finish_reason is not None else []
                if answer.text or answer.reasoning_content or calls or logprobs:
                    piece = self.piece(answer, calls)
                    self._add_logprobs(piece, logprobs, json)
                    yield b"".join(json.pieces(piece)) + b"\n"
        piece = self.piece(CompletionOutput(), [])
        self._finish(piece, last)
        yield msgspec.json.encode(piece) + b"\n"

    async def _answers(self, *, is_streamed: bool) -> AsyncGenerator[tuple[CompletionOutput, list[Logprobs]]]:
        async with aclosing(pieces(self.generation, is_streamed=is_streamed)) as stream:
            async for piece in stream:
                if self.first_token is None:
                    self.first_token = self._first_token(piece.output, is_streamed=is_streamed)
                for answer in piece.answers:
                    if self.call_parsers is not None:
                        self.call_parsers[0].take(answer)
                    yield answer, piece.logprobs.get(0, [])
                if is_streamed:
                    self.generation.call.charge.shrink(piece.num_bytes)

    def _first_token(self, output: RequestOutput, *, is_streamed: bool) -> float:
        """When the first token came, in seconds after the request's arrival."""
        if is_streamed or output.metrics is None or output.metrics.first_token_time is None:
            return self.generation.call.active_request.seconds
        return self.loaded + output.metrics.first_token_time

    def _add_logprobs(self, piece: OllamaPiece, parts: list[Logprobs], json: LongJson) -> None:
        if parts:
            piece.logprobs = chat_logprobs(self.packed(parts), self.top_logprobs, json).content

    def _finish(self, piece: OllamaPiece, answer: CompletionOutput) -> None:
        tally, end = self.generation.tally, self.generation.call.active_request.seconds
        first = end if self.first_token is None else min(self.first_token, end)
        piece.done = True
        piece.done_reason = "length" if answer.finish_reason == "length" else "stop"
        piece.total_duration, piece.load_duration = nanoseconds(end), nanoseconds(self.loaded)
        piece.prompt_eval_count, piece.eval_count = tally.prompt_tokens, tally.completion_tokens
        piece.prompt_eval_duration = nanoseconds(first - self.loaded)
        piece.eval_duration = nanoseconds(end - first)
        piece.notice = joined_notices(
            self.notice, loop_notice(answer, self.generation.params.stop or ()), tally.take_notice()
        )

    def failed(self, error: ApiError) -> bytes:
        return OLLAMA.body(in_their_words(error, self.request)) + b"\n"

    @property
    def ending(self) -> bytes:
        return b""

    @property
    def media_type(self) -> bytes:
        return b"application/x-ndjson"


@dataclass(slots=True)
class _ChatAnswer(_Answer[OllamaChatRequest]):
    def piece(self, answer: CompletionOutput, calls: list[OllamaCall]) -> OllamaPiece:
        message = OllamaAnswerMessage(
            content=answer.text, thinking=answer.reasoning_content or UNSET, tool_calls=calls or UNSET
        )
        return OllamaChatPiece(model=self.name, created_at=now(), message=message)


@dataclass(slots=True)
class _PromptAnswer(_Answer[OllamaGenerateRequest]):
    def piece(self, answer: CompletionOutput, calls: list[OllamaCall]) -> OllamaPiece:
        thinking = answer.reasoning_content or UNSET
        return OllamaGeneratePiece(model=self.name, created_at=now(), response=answer.text, thinking=thinking)


async def chat(call: Call, request: OllamaChatRequest) -> AnyReply:
    if not request.messages:
        empty = OllamaChatPiece(model=request.model or "", created_at=now(), message=OllamaAnswerMessage())
        return await _loaded(call, request, empty)
    return await _answered(call, request, _prepared_chat)


async def generate(call: Call, request: OllamaGenerateRequest) -> AnyReply:
    if not request.prompt and not request.images:
        return await _loaded(call, request, OllamaGeneratePiece(model=request.model or "", created_at=now()))
    return await _answered(call, request, _prepared_prompt)


async def _answered(
    call: Call, request: RequestT, prepare: Callable[[Call, RequestT, LoadedModel], _Answer[RequestT]]
) -> AnyReply:
    request.model = await served_name(call, request.model)
    request.stream = request.stream is not False
    try:
        return await answered(call, request, prepare, lambda threads: threads.templates, takes_long=True)
    except (ApiError, RequestError) as error:
        raise in_their_words(as_api_error(error), request) from None


async def _loaded(call: Call, request: OllamaRequest, piece: OllamaPiece) -> AnyReply:
    name = await served_name(call, request.model)
    if name is not None and request.keep_alive in (0, "0", "0s"):
        call.server.models.unload(name)
        piece.done_reason = "unload"
    else:
        async with call.server.models.lease(name):
            piece.done_reason = "load"
    piece.done = True
    return Reply(msgspec.json.encode(piece))


def tagged_name(name: str) -> str:
    """Return the name as Ollama lists it, always with a tag, which its clients rely on."""
    return name if ":" in name else name + _LATEST


async def served_name(call: Call, name: str | None) -> str | None:
    """Find the name of a model that is served; Ollama's clients append ":latest" to names without a tag."""
    if name is None or not name.endswith(_LATEST):
        return name
    names = [card.name for card in await call.server.models.listing()]
    return name if name in names else name.removesuffix(_LATEST)


def _prepared_chat(call: Call, request: OllamaChatRequest, model: LoadedModel) -> _ChatAnswer:
    return _ChatAnswer(*_prepared(call, request, model, translated_chat(request, model)))


def _prepared_prompt(call: Call, request: OllamaGenerateRequest, model: LoadedModel) -> _PromptAnswer:
    return _PromptAnswer(*_prepared(call, request, model, translated_prompt(request, model)))


def _prepared(call: Call, request: RequestT, model: LoadedModel, translated: Translated) -> tuple[Any, ...]:
    theirs, adapter = translated.request, model.adapter(None)
    further = (translated.notice, request.top_logprobs or 0)
    if isinstance(theirs, CompletionRequest):
        params = guarded(completion_params(theirs, model.defaults, call.salt, adapter))
        check_length("prompt", text := str(theirs.prompt), model)
        check_asked(1, params, call.server.options)
        return Generation(call, model, [{"prompt": text}], params), request, None, *further
    parts = chat_parts(theirs, model.defaults, call.salt, adapter)
    generation = generation_of(call, model, theirs, parts, continues=theirs.continue_final_message is True)
    return generation, request, parts.choice.call_parsers(1), *further


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * _SECOND))
