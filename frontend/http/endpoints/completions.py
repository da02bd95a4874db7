"""/v1/completions: continues one prompt or several, each once or n times, whole or as a stream."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from ....protocol.messages import Logprobs
from ....protocol.outputs import CompletionOutput
from ...requests.request import guarded
from ..answers.answering import PreparedRequest, answered
from ..answers.generation import AnswerPiece, Generation, Prompt, check_asked, check_length, pieces
from ..answers.logprobs import Section, completion_logprobs, prompt_logprobs
from ..answers.long_json import LongJson
from ..answers.reply import event, long_event, whole
from ..endpoint import AnyReply, Call
from ..loaded_model import LoadedModel
from ..requests.request_parts import COMPLETION_TOKENS, as_prompts, completion_params
from ..schemas.completions import Completion, CompletionChoice, CompletionRequest
from ..schemas.sampling import Usage


@dataclass(slots=True)
class _Completions(PreparedRequest[CompletionRequest]):
    """Choice number `prompt * n + sample` is that sample of that prompt."""

    is_echo_only: bool  # max_tokens=0: one token is computed, since a request needs one, and not sent
    offsets: dict[int, int] = field(default_factory=dict)  # of choices: the offset of the next log-probabilities
    of_prompts: dict[int, list[Logprobs]] = field(default_factory=lambda: defaultdict(list))
    begun: set[int] = field(default_factory=set)  # choices whose first piece was sent

    async def whole(self) -> AnyReply:
        found = [piece async for piece in pieces(self.generation, is_streamed=False)]
        has_logprobs, threads = self.request.logprobs is not None, self.generation.model.threads.answers
        return await self.generation.call.done(threads, _whole, self, found, takes_long=has_logprobs)

    async def events(self) -> AsyncGenerator[bytes]:
        options = self.request.stream_options
        is_counted = options is not None and options.continuous_usage_stats is True
        async with aclosing(pieces(self.generation, is_streamed=True)) as found:
            async for piece in found:
                json = LongJson()
                for choice in self.choices(piece, json):
                    for part in long_event(json, _completion(self, [choice], has_usage=is_counted)):
                        yield part
                if not piece.prompt_logprobs:  # these are sent with each sample's first piece
                    self.generation.call.charge.shrink(piece.num_bytes)
            if self.request.includes_usage:
                yield event(_completion(self, [], has_usage=True))

    def choices(self, piece: AnswerPiece, json: LongJson) -> Iterator[CompletionChoice]:
        # The prompt's log-probabilities arrive before the samples' first tokens, or with them.
        self.of_prompts[piece.prompt] += piece.prompt_logprobs
        for answer in piece.answers:
            number = piece.prompt * self.generation.params.n + answer.index
            yield self._choice(piece, answer, number, json)
            self.begun.add(number)

    def _choice(self, piece: AnswerPiece, answer: CompletionOutput, number: int, json: LongJson) -> CompletionChoice:
        is_first = number not in self.begun
        choice = CompletionChoice(
            index=number, text=answer.text, finish_reason=answer.finish_reason, stop_reason=answer.stop_reason
        )
        if self.is_echo_only:
            choice.text, choice.stop_reason = "", None
            choice.finish_reason = answer.finish_reason and "length"
        if is_first and self.request.echo:
            choice.text = self._prompt_text(piece) + choice.text
        if self.request.logprobs is not None:
            sections = list(self._sections(piece, answer, number, is_first=is_first))
            choice.logprobs = completion_logprobs(sections, self.request.logprobs, json)
        if is_first and self.request.prompt_logprobs is not None:
            choice.prompt_logprobs = prompt_logprobs(self.packed(self.of_prompts[piece.prompt]), json)
        return choice

    def _sections(
        self, piece: AnswerPiece, answer: CompletionOutput, number: int, *, is_first: bool
    ) -> Iterator[Section]:
        """Log-probabilities of the choice. Their offsets count from the beginning of the choice's text."""
        if is_first and self.request.echo:
            first = self.generation.model.tokenizer.decode([piece.output.prompt_token_ids[0]], False)
            yield Section(self.packed(self.of_prompts[piece.prompt]), first_token=first)  # nothing predicts the first
        if (parts := piece.logprobs.get(answer.index)) and not self.is_echo_only:
            start = len(self._prompt_text(piece)) if self.request.echo else 0
            section = Section(self.packed(parts), self.offsets.setdefault(number, start))
            if self.request.stream:
                self.offsets[number] += sum(map(len, section.tokens()))
            yield section

    def _prompt_text(self, piece: AnswerPiece) -> str:
        text = piece.output.prompt
        return self.generation.model.tokenizer.decode(piece.output.prompt_token_ids) if text is None else text


async def completions(call: Call, request: CompletionRequest) -> AnyReply:
    takes_long = request.add_special_tokens is False
    return await answered(call, request, _prepared, lambda threads: threads.texts, takes_long=takes_long)


def _prepared(call: Call, request: CompletionRequest, model: LoadedModel) -> _Completions:
    is_echo_only = request.max_tokens == 0
    defaults = msgspec.structs.replace(model.defaults, max_tokens=COMPLETION_TOKENS)
    params = completion_params(request, defaults, call.salt, model.adapter(request.lora_name))
    params = guarded(params)
    given = as_prompts(request.prompt)
    check_asked(len(given), params, call.server.options)
    adds_special_tokens = request.add_special_tokens is not False
    prompts = [_prompt(each, model, adds_special_tokens=adds_special_tokens) for each in given]
    return _Completions(Generation(call, model, prompts, params), request, is_echo_only)


def _prompt(given: str | list[int], model: LoadedModel, *, adds_special_tokens: bool) -> Prompt:
    if isinstance(given, str) and adds_special_tokens:
        return {"prompt": given}
    if isinstance(given, str):
        check_length("prompt", given, model)
        given = model.tokenizer.encode(given, add_special_tokens=False)
    return {"prompt_token_ids": given}


def _whole(prepared: _Completions, found: list[AnswerPiece]) -> AnyReply:
    json = LongJson()
    choices = [choice for piece in found for choice in prepared.choices(piece, json)]
    choices.sort(key=lambda choice: choice.index)
    return whole(json, _completion(prepared, choices, has_usage=True))


def _completion(prepared: _Completions, choices: list[CompletionChoice], *, has_usage: bool) -> Completion:
    return Completion(
        id=prepared.id,
        created=prepared.created,
        model=prepared.name,
        choices=choices,
        usage=_usage(prepared) if has_usage else msgspec.UNSET,
        notice=prepared.generation.tally.take_notice(),
        receipt=prepared.generation.tally.receipt(),
    )


def _usage(prepared: _Completions) -> Usage:
    usage = prepared.generation.tally.usage
    if prepared.is_echo_only:
        usage.completion_tokens, usage.total_tokens = 0, usage.prompt_tokens
    return usage
