"""/v1/completions: one prompt or many, each continued once or n times, whole or in pieces."""

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field

import msgspec

from ....protocol.outputs import CompletionOutput
from ....protocol.sampling import SamplingParams
from ..endpoint import Call
from ..errors import ApiError
from ..generation import Piece, Prompt, Tally, check_length, check_number, pieces
from ..logprobs import CompletionLogprobsBuilder, joined, prompt_logprobs
from ..models import Model
from ..parameters import sampling_params
from ..reply import Events, Reply, event, in_turns
from ..schemas.completions import Completion, CompletionChoice, CompletionLogprobs, CompletionRequest
from ..schemas.sampling import Usage


@dataclass(slots=True)
class _Completions:
    """One request, ready to be answered. Choice `prompt * n + sample` is a prompt's sample."""

    call: Call
    request: CompletionRequest
    model: Model
    prompts: list[Prompt]
    params: SamplingParams
    name: str
    is_echo_only: bool  # max_tokens=0: one token is computed, for its company's sake, and not told
    id: str = field(default_factory=lambda: "cmpl-" + secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))
    tally: Tally = field(default_factory=Tally)
    logprobs: dict[int, CompletionLogprobsBuilder] = field(default_factory=dict)
    echoed: dict[int, CompletionLogprobs] = field(default_factory=dict)  # of a prompt
    told: set[int] = field(default_factory=set)  # choices that have begun

    def pieces(self, *, is_streamed: bool) -> AsyncGenerator[Piece]:
        metrics = self.call.server.metrics
        client = self.call.client
        return pieces(
            self.model, self.prompts, self.params, metrics, self.tally, is_streamed=is_streamed, client=client
        )

    def choices(self, piece: Piece) -> Iterator[CompletionChoice]:
        self._note_prompt(piece)
        for answer in piece.answers:
            number = piece.prompt * self.params.n + answer.index
            yield self._choice(piece, answer, number, is_first=number not in self.told)
            self.told.add(number)

    def _note_prompt(self, piece: Piece) -> None:
        """A prompt's log-probabilities come before its samples' first tokens, or with them."""
        if not self.request.echo or self.request.logprobs is None or piece.output.prompt_logprobs is None:
            return
        builder = CompletionLogprobsBuilder(self.request.logprobs)
        first = builder.echoed(self.model.tokenizer.decode([piece.output.prompt_token_ids[0]], False))
        self.echoed[piece.prompt] = joined(first, builder.take(piece.output.prompt_logprobs))

    def _choice(self, piece: Piece, answer: CompletionOutput, number: int, *, is_first: bool) -> CompletionChoice:
        choice = CompletionChoice(
            index=number, text=answer.text, finish_reason=answer.finish_reason, stop_reason=answer.stop_reason
        )
        if self.request.logprobs is not None:
            choice.logprobs = self._builder(piece, number).take(answer.logprobs)
        if self.is_echo_only:
            choice.text, choice.logprobs, choice.stop_reason = "", None, None
            choice.finish_reason = answer.finish_reason and "length"
        if is_first and self.request.echo:
            choice.text = self._prompt_text(piece) + choice.text
            if piece.prompt in self.echoed:
                choice.logprobs = joined(self.echoed[piece.prompt], choice.logprobs)
        if is_first and self.request.prompt_logprobs is not None and piece.output.prompt_logprobs is not None:
            choice.prompt_logprobs = prompt_logprobs(piece.output.prompt_logprobs)
        return choice

    def _builder(self, piece: Piece, number: int) -> CompletionLogprobsBuilder:
        """Offsets count from where the text of the choice begins."""
        if number not in self.logprobs:
            start = len(self._prompt_text(piece)) if self.request.echo else 0
            self.logprobs[number] = CompletionLogprobsBuilder(self.request.logprobs or 0, start)
        return self.logprobs[number]

    def _prompt_text(self, piece: Piece) -> str:
        text = piece.output.prompt
        return self.model.tokenizer.decode(piece.output.prompt_token_ids) if text is None else text


async def completions(call: Call, request: CompletionRequest) -> Reply | Events:
    lease = AsyncExitStack()
    try:
        model = await lease.enter_async_context(call.server.models.lease(request.model))
        prepared = await call.done(
            model.threads.texts, _prepared, call, request, model, takes_long=request.add_special_tokens is False
        )
        if request.stream:
            return Events(_events(prepared, lease.pop_all()))
        found = [piece async for piece in prepared.pieces(is_streamed=False)]
        has_logprobs = prepared.params.logprobs is not None
        return await call.done(model.threads.answers, _whole, prepared, found, takes_long=has_logprobs)
    finally:
        await lease.aclose()


def _prepared(call: Call, request: CompletionRequest, model: Model) -> _Completions:
    if request.suffix:
        raise ApiError(400, "suffix: filling a gap is not supported; leave it out.", param="suffix")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise ApiError(400, "best_of must equal n: all answers are returned.", param="best_of")
    is_echo_only = request.max_tokens == 0
    if is_echo_only and not request.echo:
        raise ApiError(400, "max_tokens=0 asks for nothing; it needs echo.", param="max_tokens")
    wants_prompt = request.echo and request.logprobs is not None
    params = sampling_params(
        request,
        model.defaults,
        call.salt,
        # OpenAI's default for this endpoint.
        max_tokens=1 if is_echo_only else 16 if request.max_tokens is None else request.max_tokens,
        logprobs=request.logprobs,
        prompt_logprobs=max(request.logprobs or 0, request.prompt_logprobs or 0) if wants_prompt else None,
        lora_name=model.adapter(request.lora_name),
    )
    prompts = [_prompt(each) for each in as_prompts(request.prompt)]
    check_number(len(prompts), params, call.server.options)
    if request.add_special_tokens is False:
        prompts = [
            {"prompt_token_ids": _without_special_tokens(each["prompt"], model)}
            if "prompt" in each else each
            for each in prompts
        ]  # fmt: skip
    return _Completions(call, request, model, prompts, params, request.model or model.name, is_echo_only)


def as_prompts(given: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """Token ids are one prompt; a list of texts or of lists of ids is as many."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise ApiError(400, "prompt: the list is empty; give at least one prompt.", param="prompt")
    if isinstance(given[0], int):
        if not all(isinstance(each, int) for each in given):
            raise ApiError(400, "prompt: a list that begins with a token id holds token ids alone.", param="prompt")
        return [given]  # type: ignore[list-item]
    if any(isinstance(each, int) for each in given):
        raise ApiError(400, "prompt: token ids stand in a list of their own.", param="prompt")
    return given  # type: ignore[return-value]


def _without_special_tokens(text: str, model: Model) -> list[int]:
    check_length("prompt", text, model)
    return model.tokenizer.encode(text, add_special_tokens=False)


def _prompt(given: str | list[int]) -> Prompt:
    return {"prompt": given} if isinstance(given, str) else {"prompt_token_ids": given}


def _whole(prepared: _Completions, found: list[Piece]) -> Reply:
    choices = [choice for piece in found for choice in prepared.choices(piece)]
    choices.sort(key=lambda choice: choice.index)
    return Reply.of(_completion(prepared, in_turns(choices), has_usage=True))


async def _events(prepared: _Completions, lease: AsyncExitStack) -> AsyncIterator[bytes]:
    """The lease ends with the stream."""
    options = prepared.request.stream_options
    is_counted = options is not None and options.continuous_usage_stats
    async with lease, aclosing(prepared.pieces(is_streamed=True)) as found:
        async for piece in found:
            for choice in prepared.choices(piece):
                yield event(_completion(prepared, [choice], has_usage=is_counted))
        if prepared.request.includes_usage:
            yield event(_completion(prepared, [], has_usage=True))


def _completion(prepared: _Completions, choices: list[CompletionChoice], *, has_usage: bool) -> Completion:
    return Completion(
        id=prepared.id,
        created=prepared.created,
        model=prepared.name,
        choices=choices,
        usage=_usage(prepared) if has_usage else msgspec.UNSET,
    )


def _usage(prepared: _Completions) -> Usage:
    usage = prepared.tally.usage
    if prepared.is_echo_only:
        usage.completion_tokens, usage.total_tokens = 0, usage.prompt_tokens
    return usage
