"""/v1/embeddings, /v1/classify and /pooling, as OpenAI and vLLM have them: the numbers of texts or token ids."""

import base64
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from .....protocol.parameters.pooling import PoolingParams
from ....pooling.calls import classified
from ...answers.errors import ApiError
from ...answers.long_json import LongJson
from ...answers.reply import Reply
from ...endpoint import AnyReply, Call
from ...requests.request_parts import as_prompts
from ...schemas.numbers import (
    Classified,
    ClassifiedList,
    ClassifyRequest,
    Embedding,
    EmbeddingList,
    EmbeddingRequest,
    Numbers,
    NumbersUsage,
    Pooled,
    PooledList,
    PoolingRequest,
    Texts,
)
from .results import Results, check_texts, long_reply, num_tokens, numbers, pooled_model

_TASKS = {"embed": "embed", "token_embed": "embed", "classify": "classify", "token_classify": "classify"}


async def embeddings(call: Call, request: EmbeddingRequest) -> AnyReply:
    prompts = _prompts(call, request.input)
    async with call.model(request.model) as model:
        if pooled_model(model, "embed").form.by_token:
            raise ApiError(400, f"{model.name} gives a vector for each token; use /pooling.", param="model")
        outputs = await numbers(call, model, prompts, given_params(request))
    json = LongJson()
    body = EmbeddingList(
        id=call.active_request.id,
        created=int(time.time()),
        model=request.model or model.name,
        data=json.defer(_embeddings(outputs, request.encoding_format)),
        usage=usage(outputs),
    )
    return long_reply(json, body)


def _embeddings(outputs: Results, encoding: str | None) -> Iterator[Embedding]:
    for index, output in enumerate(outputs):
        yield Embedding(index=index, embedding=encoded(data_of(output), encoding))


async def pooling(call: Call, request: PoolingRequest) -> AnyReply:
    prompts = _prompts(call, request.input)
    params = given_params(request)
    if request.task is not None and request.task.startswith("token_"):
        params = msgspec.structs.replace(params, by_token=True)
    async with call.model(request.model) as model:
        pooled_model(model, _TASKS[request.task] if request.task is not None else None)  # type: ignore[arg-type]
        outputs = await numbers(call, model, prompts, params)
    json = LongJson()
    body = PooledList(
        id=call.active_request.id,
        created=int(time.time()),
        model=request.model or model.name,
        data=json.defer(_pooled(outputs, request.encoding_format, json)),
        usage=usage(outputs),
    )
    return long_reply(json, body)


def _pooled(outputs: Results, encoding: str | None, json: LongJson) -> Iterator[Pooled]:
    for index, output in enumerate(outputs):
        data = data_of(output)
        is_long = data.ndim > 1 and encoding != "base64"
        yield Pooled(index=index, data=json.defer(row.tolist() for row in data) if is_long else encoded(data, encoding))


async def classify(call: Call, request: ClassifyRequest) -> AnyReply:
    prompts = _prompts(call, request.input)
    async with call.model(request.model) as model:
        pooled = pooled_model(model, "classify")
        if pooled.form.by_token:
            raise ApiError(400, f"{model.name} classifies each token; use /pooling.", param="model")
        outputs = await numbers(call, model, prompts, given_params(request))
    tokens = usage(outputs)
    found = [output.outputs for output in classified(outputs, pooled) if output.outputs is not None]
    return Reply.of(
        ClassifiedList(
            id=call.active_request.id,
            created=int(time.time()),
            model=request.model or model.name,
            data=[
                Classified(index=index, label=each.label, probs=each.probs, num_classes=each.num_classes)
                for index, each in enumerate(found)
            ],
            usage=tokens,
        )
    )


def _prompts(call: Call, given: Texts) -> Sequence[str | list[int]]:
    prompts = as_prompts(given, "input")
    check_texts(call, len(prompts), "input")
    return prompts


def given_params(request: Any) -> PoolingParams:
    """The parameters that a request gives; null is the same as not given."""
    names = PoolingParams.__struct_fields__
    given = {name: value for name in names if (value := getattr(request, name, None)) is not None}
    return PoolingParams(**given)


def data_of(output: Any) -> Any:
    return output.outputs.data


def encoded(data: Any, encoding: str | None) -> Numbers:
    """An array as a list, or as base64 of float32 in little-endian order."""
    return base64.b64encode(data.astype("<f4").tobytes()).decode() if encoding == "base64" else data.tolist()


def usage(outputs: Results) -> NumbersUsage:
    tokens = num_tokens(outputs)
    return NumbersUsage(prompt_tokens=tokens, total_tokens=tokens)
