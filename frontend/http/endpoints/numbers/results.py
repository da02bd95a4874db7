"""Computes the numbers of a request's texts, for the endpoints that answer without text.

The texts of a request run concurrently; if one fails, the whole request fails, and says which.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from .....protocol.parameters.pooling import PoolingParams
from .....protocol.pooling.outputs import PoolingOutput, PoolingRequestOutput
from ....models.pooled_model import GIVEN, PooledModel, Task
from ....pooling.calls import labelled_error
from ....requests.prompts import CUTTING
from ....session.session import Session
from ...answers.errors import ApiError, check
from ...answers.long_json import PIECE_BYTES, LongJson
from ...answers.reply import LongReply, Reply
from ...endpoint import AnyReply, Call
from ...loaded_model import LoadedModel
from ...requests.parameters import salted

OWN_CUTTING = "truncate_prompt_tokens=-1"  # the field of most bodies that lets a text be cut
Results = list[PoolingRequestOutput[PoolingOutput]]

API_VERSION = {"version": "2"}  # of Cohere's API, in the replies of its endpoints
_ENDPOINTS = {
    "embed": "/v1/embeddings or /v1/rerank",
    "classify": "/v1/classify, or /v1/rerank if it has one class",
}


def pooled_model(session: Session[Any], name: str, task: Task | None = None) -> PooledModel:
    """Return what the model gives; refuse a model that writes text, or gives something else than the task."""
    if (pooled := session.pooled) is None:
        raise ApiError(
            400,
            f"{name} writes text and gives no numbers. Name an embedding or reranking model (/v1/models says in "
            "architecture.output_modalities what each gives), or ask the server's owner for one with "
            "runner='pooling'.",
            param="model",
        )
    if task is not None and pooled.task != task:
        raise ApiError(
            400,
            f"{name} gives {GIVEN[pooled.task]} and no {GIVEN[task]}; use {_ENDPOINTS[pooled.task]}.",
            param="model",
        )
    return pooled


def check_texts(count: int, most: int | None, field: str) -> None:
    """Refuse a request without texts, or with more than allowed."""
    if count == 0:
        raise ApiError(400, f"{field}: the list is empty; give at least one text.", param=field)
    if most is not None and count > most:
        raise ApiError(
            400,
            f"{field} has {count:,} texts, and one request may have {most:,} (option max_texts). Send several "
            "requests.",
            param=field,
        )


def text_label(number: int, count: int) -> str:
    """Name one of several texts in a refusal; empty if there is no other."""
    return "" if count == 1 else f"Text {number}"


async def numbers_of(
    call: Call,
    model: LoadedModel,
    prompts: Iterable[tuple[Any, PoolingParams]],
    label: Callable[[int], str],
    cutting: str = OWN_CUTTING,
) -> Results:
    """Compute the numbers of prompts, each with its own parameters; a refusal says which of several by its label.

    `cutting` is what the request would say to have its texts cut.
    """
    timer = call.server.metrics.timer(model.name)
    outputs = await model.numbers(
        prompts,
        call.charge,
        cache_salt=salted(call.salt, None),
        on_submit=call.active_request.prompts.append,
    )
    for number, output in enumerate(outputs):
        if output is not None and output.error_code != 200:
            output.error_msg = (labelled_error(output, label(number)) or "").replace(CUTTING, cutting)
            check(output)
    timer.end(["stop"] * len(outputs))
    call.charge.grow(sum(output.outputs.data.nbytes + len(output.receipt or "") for output in outputs))
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
