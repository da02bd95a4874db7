"""Computes the numbers of a request's texts, for the endpoints that answer without text.

The texts of a request run concurrently; if one fails, the whole request fails, and says which.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from .....protocol.parameters.pooling import PoolingParams
from .....protocol.pooling.outputs import PoolingOutput, PoolingRequestOutput
from ....models.pooled_model import PooledModel, Task
from ...answers.errors import ApiError, check
from ...answers.long_json import PIECE_BYTES, LongJson
from ...answers.reply import LongReply, Reply
from ...endpoint import AnyReply, Call
from ...loaded_model import LoadedModel
from ...requests.parameters import salted

Results = list[PoolingRequestOutput[PoolingOutput]]

_GIVES = {"embed": "vectors", "classify": "classes"}
_ENDPOINTS = {
    "embed": "/v1/embeddings or /v1/rerank",
    "classify": "/v1/classify, or /v1/rerank if it has one class",
}


def pooled_model(model: LoadedModel, task: Task | None = None) -> PooledModel:
    """What the model gives; refuses a model that writes text, or gives something else than the task."""
    if (pooled := model.session.pooled) is None:
        raise ApiError(
            400,
            f"{model.name} writes text and gives no numbers. Name an embedding or reranking model (/v1/models says in "
            "architecture.output_modalities what each gives), or ask the server's owner for one with "
            "runner='pooling'.",
            param="model",
        )
    if task is not None and pooled.task != task:
        raise ApiError(
            400,
            f"{model.name} gives {_GIVES[pooled.task]} and no {_GIVES[task]}; use {_ENDPOINTS[pooled.task]}.",
            param="model",
        )
    return pooled


def check_texts(call: Call, num_texts: int, param: str) -> None:
    """Refuse a request without texts, or with more than allowed."""
    if num_texts == 0:
        raise ApiError(400, f"{param}: the list is empty; give at least one text.", param=param)
    if num_texts > (most := call.server.options.max_texts):
        raise ApiError(
            400,
            f"{param} has {num_texts:,} texts, and one request may have {most:,} (option max_texts). Send several "
            "requests.",
            param=param,
        )


async def numbers(call: Call, model: LoadedModel, prompts: Iterable[Any], params: PoolingParams) -> Results:
    """The numbers of each prompt, checked."""
    return await numbers_of(call, model, ((prompt, params) for prompt in prompts), name="Text")


async def numbers_of(
    call: Call, model: LoadedModel, prompts: Iterable[tuple[Any, PoolingParams]], *, name: str | None = None
) -> Results:
    """The numbers of prompts, each with its own parameters; a refusal says which of several by this name."""
    timer = call.server.metrics.timer(model.name)
    outputs = await model.numbers(
        prompts,
        call.charge,
        cache_salt=salted(call.salt, None),
        on_submit=call.active_request.prompts.append,
    )
    for number, output in enumerate(outputs):
        if output is not None and output.error_code != 200:
            if output.error_code == 400 and len(outputs) > 1 and name is not None:
                output.error_msg = f"{name} {number}: {output.error_msg}"
            check(output)
    timer.end()
    call.charge.grow(sum(output.outputs.data.nbytes for output in outputs))
    return outputs


def num_tokens(outputs: Sequence[PoolingRequestOutput[Any]]) -> int:
    return sum(len(output.prompt_token_ids) for output in outputs)


def long_reply(json: LongJson, body: msgspec.Struct) -> AnyReply:
    """A reply with deferred lists: sent while it is encoded if it is long, otherwise at once."""
    pieces = json.pieces(body)
    first = next(pieces)
    if len(first) < PIECE_BYTES:
        return Reply(first)
    return LongReply(_chained(first, pieces))


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
