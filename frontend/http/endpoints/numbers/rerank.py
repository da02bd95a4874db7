"""/v1/rerank and its older and newer paths, and /v1/score: how well documents fit a query."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from .....protocol.errors import ConfigError
from .....protocol.parameters.pooling import PoolingParams
from .....protocol.pooling.outputs import PoolingRequestOutput, ScoringOutput
from ....models.pooled_model import PooledModel
from ....pooling.scores import comparison, text_pairs
from ...answers.errors import ApiError
from ...answers.reply import Reply
from ...endpoint import Call
from ...loaded_model import LoadedModel
from ...schemas.numbers import (
    NumbersUsage,
    Ranked,
    RerankReply,
    RerankRequest,
    RerankText,
    Score,
    ScoreList,
    ScoreRequest,
    Sides,
)
from .embeddings import given_params, usage
from .results import Results, check_texts, numbers, pooled_model

_API_VERSION = {"version": "2"}


async def rerank(call: Call, request: RerankRequest) -> Reply:
    documents = texts = [each if isinstance(each, str) else each.text for each in request.documents]
    check_texts(call, len(documents), "documents")
    params = given_params(request)
    if params.truncate_prompt_tokens is None and (request.truncation or request.max_tokens_per_doc):
        params = msgspec.structs.replace(params, truncate_prompt_tokens=-1)
    async with call.model(request.model) as model:
        if request.max_tokens_per_doc is not None:
            work = [model.tokenizer, documents, request.max_tokens_per_doc]
            documents = await call.done(model.threads.texts, _shortened, *work, takes_long=True)
        found, tokens = await _scores(call, model, [(request.query, each) for each in documents], params)
    order = sorted(range(len(found)), key=lambda place: -found[place])[: request.top_n]
    results = [Ranked(index=place, relevance_score=found[place]) for place in order]
    if request.return_documents:
        for each in results:
            each.document = RerankText(text=texts[each.index])
    billed = {"input_tokens": tokens.total_tokens, "search_units": 1}
    return Reply.of(
        RerankReply(
            id=call.active_request.id,
            model=request.model or model.name,
            results=results,
            usage=tokens,
            meta={"api_version": _API_VERSION, "billed_units": billed, "tokens": {"input_tokens": tokens.total_tokens}},
        )
    )


def _shortened(tokenizer: Any, documents: Sequence[str], most: int) -> list[str]:
    """The documents, each cut behind so many of its tokens."""
    return [_cut(text, tokenizer.backend.encode(text, add_special_tokens=False).offsets, most) for text in documents]


def _cut(text: str, offsets: Sequence[tuple[int, int]], most: int) -> str:
    return text if len(offsets) <= most else text[: offsets[most - 1][1]]


async def score(call: Call, request: ScoreRequest) -> Reply:
    first, second = _side(request, "text_1", "queries"), _side(request, "text_2", "documents")
    pairs = text_pairs(first, second)
    check_texts(call, len(pairs), "text_2" if request.text_2 is not None else "documents")
    async with call.model(request.model) as model:
        found, tokens = await _scores(call, model, pairs, given_params(request))
    return Reply.of(
        ScoreList(
            id=call.active_request.id,
            created=int(time.time()),
            model=request.model or model.name,
            data=[Score(index=index, score=each) for index, each in enumerate(found)],
            usage=tokens,
        )
    )


def _side(request: ScoreRequest, name: str, newer: str) -> Sides:
    given, also = getattr(request, name), getattr(request, newer)
    if (given is None) == (also is None):
        raise ApiError(400, f"Give {name}, or {newer} instead of it: a text or a list of texts.", param=name)
    return given if given is not None else also  # type: ignore[no-any-return]


async def _scores(
    call: Call, model: LoadedModel, pairs: Sequence[tuple[str, str]], params: PoolingParams
) -> tuple[list[float], NumbersUsage]:
    pooled = pooled_model(model)
    compared = _comparison(model, pooled, pairs, params)
    outputs: Results = []
    for prompts, own in compared.groups:
        outputs += await numbers(call, model, prompts, own)
    tokens = usage(outputs)
    return [_score_of(each) for each in compared.scores(outputs)], tokens


def _comparison(
    model: LoadedModel, pooled: PooledModel, pairs: Sequence[tuple[str, str]], params: PoolingParams
) -> Any:
    door = model.session.door.pooling
    longest = model.max_model_len if door is None else door.longest
    try:
        return comparison(pairs, pooled, lambda: model.tokenizer, longest, params)
    except ConfigError as error:
        raise ApiError(400, str(error), param="model") from None


def _score_of(output: PoolingRequestOutput[ScoringOutput]) -> float:
    return 0.0 if output.outputs is None else output.outputs.score
