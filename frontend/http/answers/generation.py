"""Submits a request's prompts and returns the pieces of their answers, for all generating endpoints.

The prompts run concurrently; if one fails, the whole request fails. A timer and a tally see every piece, for the
metrics and for the usage figures.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from ....protocol.messages import Logprobs, request_and_sample
from ....protocol.outputs import CompletionOutput, RequestOutput
from ....protocol.parameters.sampling import SamplingParams
from ...receipts.receipt import PLAIN, SEPARATOR, View, with_view
from ...requests.pending_request import PackedOutput
from ...requests.prompts import RenderedPrompt
from ..endpoint import Call
from ..loaded_model import LoadedModel
from ..options import HttpOptions
from ..schemas.sampling import CompletionDetails, PromptDetails, Usage
from .errors import ApiError, check

if TYPE_CHECKING:
    from ..requests.tool_choice import CallParser

Prompt = RenderedPrompt | Mapping[str, Any]

_CHARACTERS_A_TOKEN = 16


class Tally:
    """Tokens of a request so far. A prompt counts once, however many samples it has."""

    def __init__(self) -> None:
        self.reports_drafts = False  # how many there are is chance, unless the request has a prediction
        self._prompts: dict[int, tuple[int, PromptDetails]] = {}  # tokens, and their details
        self.completion_tokens = 0
        self._draft_tokens = self._accepted_tokens = 0
        self._notice: str | UnsetType = UNSET
        self._receipts: dict[int, str] = {}

    def take_notice(self) -> str | UnsetType:
        """A notice that no body or chunk has had yet."""
        notice, self._notice = self._notice, UNSET
        return notice

    def add(self, prompt: int, output: RequestOutput) -> None:
        if output.notice is not None:
            self._notice = output.notice
        self._prompts[prompt] = len(output.prompt_token_ids), PromptDetails.of(output)
        self.completion_tokens += sum(len(answer.token_ids) for answer in output.outputs)
        if output.metrics is not None:
            self._draft_tokens += output.metrics.num_draft_tokens
            self._accepted_tokens += output.metrics.num_accepted_tokens
        if output.receipt is not None:
            self._receipts[prompt] = output.receipt

    def receipt(self, view: View = PLAIN) -> str | UnsetType:
        """The receipts of all prompts, once all have been answered and if they were asked for."""
        if not self._receipts or len(self._receipts) < len(self._prompts):
            return UNSET
        return with_view(SEPARATOR.join(self._receipts[prompt] for prompt in sorted(self._receipts)), view)

    @property
    def prompt_tokens(self) -> int:
        return sum(tokens for tokens, _ in self._prompts.values())

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=self.prompt_tokens + self.completion_tokens,
            prompt_tokens_details=PromptDetails.sum_of(details for _, details in self._prompts.values()),
            completion_tokens_details=self._completion_details,
        )

    @property
    def _completion_details(self) -> CompletionDetails | UnsetType:
        if not self.reports_drafts:
            return UNSET
        accepted, rejected = self._accepted_tokens, self._draft_tokens - self._accepted_tokens
        return CompletionDetails(accepted_prediction_tokens=accepted, rejected_prediction_tokens=rejected)


@dataclass(slots=True)
class AnswerPiece:
    prompt: int  # its index in the request
    output: RequestOutput
    answers: list[CompletionOutput]  # its samples with new output
    logprobs: dict[int, list[Logprobs]]  # by sample, if there are any
    prompt_logprobs: list[Logprobs]
    num_bytes: int  # charged for it; released once it has been sent


@dataclass(frozen=True, slots=True)
class Generation:
    """The prompts and parameters of a request, its model and its call."""

    call: Call
    model: LoadedModel
    prompts: Sequence[Prompt]
    params: SamplingParams
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.tally.reports_drafts = self.params.prediction is not None


async def pieces(generation: Generation, *, is_streamed: bool) -> AsyncGenerator[AnswerPiece]:
    """Pieces of the answers; closing the generator aborts prompts that still run.

    The caller releases a piece's bytes after sending it, unless it keeps part of the piece.
    """
    source = _one(generation, 0, is_streamed) if len(generation.prompts) == 1 else _merged(generation, is_streamed)
    async with aclosing(source) as stream:
        async for number, news in stream:
            generation.tally.add(number, news.output)
            piece = _piece(number, news, is_streamed)
            if piece.answers or piece.prompt_logprobs:
                yield piece
            else:
                generation.call.charge.shrink(piece.num_bytes)


async def parsed_answers(
    generation: Generation, call_parsers: "Sequence[CallParser] | None", *, is_streamed: bool
) -> AsyncGenerator[CompletionOutput]:
    """The pieces of the only sample of a request's only prompt, calls found."""
    async with aclosing(pieces(generation, is_streamed=is_streamed)) as stream:
        async for piece in stream:
            for answer in piece.answers:
                if call_parsers is not None:
                    call_parsers[0].take(answer)
                yield answer


def _piece(number: int, news: PackedOutput, is_streamed: bool) -> AnswerPiece:
    of_samples: dict[int, list[Logprobs]] = defaultdict(list)
    of_prompt: list[Logprobs] = []
    for part in news.logprobs:
        (of_prompt if part.is_prompt else of_samples[request_and_sample(part.owner)[1]]).append(part)
    answers = [answer for answer in news.output.outputs if not is_streamed or _has_news(answer)]
    return AnswerPiece(number, news.output, answers, of_samples, of_prompt, news.num_bytes)


async def _one(generation: Generation, number: int, is_streamed: bool) -> AsyncGenerator[tuple[int, PackedOutput]]:
    timer = generation.call.server.metrics.timer(generation.model.name)
    call, prompt = generation.call, generation.prompts[number]
    source = generation.model.stream(
        prompt, generation.params, call.charge, is_streamed=is_streamed, on_submit=call.active_request.prompts.append
    )
    reasons: list[str] = []
    num_tokens = 0
    try:
        async with aclosing(source) as stream:
            async for news in stream:
                output = check(news.output)
                if is_streamed:
                    timer.piece(max(len(answer.token_ids) for answer in output.outputs))
                num_tokens += sum(len(answer.token_ids) for answer in output.outputs)
                reasons += [answer.finish_reason for answer in output.outputs if answer.finish_reason]
                if output.finished:
                    timer.end(reasons, output.metrics, num_tokens)
                yield number, news
    except (GeneratorExit, asyncio.CancelledError):
        timer.give_up()
        raise


async def _merged(generation: Generation, is_streamed: bool) -> AsyncGenerator[tuple[int, PackedOutput]]:
    most = len(generation.prompts)
    arrived: asyncio.Queue[tuple[int, PackedOutput] | BaseException | None] = asyncio.Queue(maxsize=most)

    async def feed(number: int) -> None:
        try:
            async with aclosing(_one(generation, number, is_streamed)) as stream:
                async for item in stream:
                    await arrived.put(item)
            await arrived.put(None)
        except Exception as error:
            await arrived.put(error)

    tasks = [asyncio.create_task(feed(number)) for number in range(len(generation.prompts))]
    try:
        running = len(tasks)
        while running:
            item = await arrived.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _has_news(answer: CompletionOutput) -> bool:
    return bool(
        answer.text or answer.token_ids or answer.reasoning_content or answer.tool_calls or answer.finish_reason
    )


def check_length(param: str, given: str | Sequence[int], model: LoadedModel) -> None:
    """Refuse a text or token ids that are far too long, before they are tokenized or detokenized."""
    if len(given) > (most := _CHARACTERS_A_TOKEN * model.max_model_len):
        kind = "characters" if isinstance(given, str) else "tokens"
        raise ApiError(400, f"{param} has {len(given):,} {kind}, and the limit is {most:,}.", param=param)


def check_asked(num_prompts: int, params: SamplingParams, options: HttpOptions) -> None:
    """Refuse a request for more answers than allowed, or for a priority if there are none."""
    if (wanted := num_prompts * params.n) > options.max_outputs:
        raise ApiError(
            400,
            f"{num_prompts} prompts with n={params.n} are {wanted} answers, and one request may ask for "
            f"{options.max_outputs} (option max_outputs).",
        )
    if params.priority != 0 and not options.allow_priority:
        raise ApiError(
            400,
            f"priority={params.priority}: this server takes requests of all clients in turn; leave it out or give 0 "
            "(option allow_priority).",
            param="priority",
        )
