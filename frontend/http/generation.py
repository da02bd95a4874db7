"""From prompts to pieces of answers: what all endpoints that generate have in common.

A request's prompts run side by side; a failed one fails the whole. Every piece passes the watch that keeps the time and
the tally that counts tokens. Knows nothing of the form in which an endpoint tells the pieces.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ...protocol.outputs import CompletionOutput, RequestOutput
from ...protocol.sampling import SamplingParams
from ..asked import Rendered
from .errors import ApiError, check
from .metrics import Metrics
from .models import Model
from .options import HttpOptions
from .schemas.sampling import PromptDetails, Usage

Prompt = Rendered | Mapping[str, Any]

_CHARACTERS_A_TOKEN = 16


class Tally:
    """Tokens of a request so far. A prompt's count once, however many samples it has."""

    def __init__(self) -> None:
        self._prompts: dict[int, RequestOutput] = {}
        self.completion_tokens = 0

    def add(self, prompt: int, output: RequestOutput) -> None:
        self._prompts[prompt] = output
        self.completion_tokens += sum(len(answer.token_ids) for answer in output.outputs)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(output.prompt_token_ids) for output in self._prompts.values())

    @property
    def cached_tokens(self) -> int:
        return sum(output.num_cached_tokens for output in self._prompts.values())

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=self.prompt_tokens + self.completion_tokens,
            prompt_tokens_details=PromptDetails(cached_tokens=self.cached_tokens),
        )


@dataclass(slots=True)
class Piece:
    prompt: int  # its place in the request
    output: RequestOutput
    answers: list[CompletionOutput]  # those among its samples that have news


async def pieces(
    model: Model,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    metrics: Metrics,
    tally: Tally,
    *,
    is_streamed: bool,
    client: str,
) -> AsyncGenerator[Piece]:
    """Closing it aborts what still runs."""
    single = _one(model, 0, prompts[0], params, metrics, is_streamed, client)
    source = single if len(prompts) == 1 else _merged(model, prompts, params, metrics, is_streamed, client)
    async with aclosing(source) as stream:
        async for number, output in stream:
            tally.add(number, output)
            news = [answer for answer in output.outputs if not is_streamed or _has_news(answer)]
            if news or output.prompt_logprobs:
                yield Piece(number, output, news)


async def _one(
    model: Model,
    number: int,
    prompt: Prompt,
    params: SamplingParams,
    metrics: Metrics,
    is_streamed: bool,
    client: str,
) -> AsyncIterator[tuple[int, RequestOutput]]:
    watch = metrics.watch(model.name)
    source = model.stream(prompt, params, is_streamed=is_streamed, client=client)
    async with aclosing(source) as stream:  # type: ignore[type-var]
        async for output in stream:
            check(output)
            if is_streamed:
                watch.piece(max(len(answer.token_ids) for answer in output.outputs))
            yield number, output
    watch.end()


async def _merged(
    model: Model,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    metrics: Metrics,
    is_streamed: bool,
    client: str,
) -> AsyncIterator[tuple[int, RequestOutput]]:
    arrived: asyncio.Queue[tuple[int, RequestOutput] | BaseException | None] = asyncio.Queue(maxsize=len(prompts))

    async def feed(number: int, prompt: Prompt) -> None:
        try:
            async with aclosing(_one(model, number, prompt, params, metrics, is_streamed, client)) as stream:
                async for item in stream:
                    await arrived.put(item)
            await arrived.put(None)
        except Exception as error:
            await arrived.put(error)

    tasks = [asyncio.create_task(feed(number, prompt)) for number, prompt in enumerate(prompts)]
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


def check_length(param: str, given: str | Sequence[int], model: Model) -> None:
    """Before it is cut into tokens, or put together from them."""
    if len(given) > (most := _CHARACTERS_A_TOKEN * model.max_model_len):
        kind = "characters" if isinstance(given, str) else "tokens"
        raise ApiError(400, f"{param} has {len(given):,} {kind}, and the limit is {most:,}.", param=param)


def check_number(prompts: int, params: SamplingParams, options: HttpOptions) -> None:
    if (wanted := prompts * params.n) > options.max_outputs:
        raise ApiError(
            400,
            f"{prompts} prompts with n={params.n} are {wanted} answers, and one request may ask for "
            f"{options.max_outputs} (option max_outputs).",
        )
