"""/api/embed and the older /api/embeddings: vectors in the form of Ollama's clients."""

from msgspec import UNSET

from .....protocol.errors import RequestError
from .....protocol.parameters.pooling import PoolingParams
from ...answers.errors import ApiError
from ...answers.long_json import LongJson
from ...answers.reply import Reply
from ...endpoint import AnyReply, Call
from ...loaded_model import LoadedModel
from ...schemas.ollama import (
    OllamaEmbedReply,
    OllamaEmbedRequest,
    OllamaOldEmbedReply,
    OllamaOldEmbedRequest,
)
from ..ollama import nanoseconds, served_name
from .embeddings import data_of
from .results import Results, check_texts, long_reply, num_tokens, numbers_of, pooled_model, text_label


async def embed(call: Call, request: OllamaEmbedRequest) -> AnyReply:
    texts = [request.input] if isinstance(request.input, str) else request.input
    if texts:
        check_texts(len(texts), call.server.options.max_texts, "input")
    name = await served_name(call, request.model)
    params = _params(request.dimensions, request.truncate)
    async with call.model(name) as model:
        pooled_model(model.session, model.name, "embed")
        loaded = call.active_request.seconds
        # Without texts the model is loaded, and that is all.
        outputs = await _numbers(call, model, texts, params) if texts not in ([""], []) else []
    json = LongJson()
    body = OllamaEmbedReply(
        model=request.model or model.name,
        embeddings=json.defer(data_of(output).tolist() for output in outputs),
        total_duration=nanoseconds(call.active_request.seconds),
        load_duration=nanoseconds(loaded),
        prompt_eval_count=num_tokens(outputs),
        notice=model.session.notice_of_cut(request.dimensions) or UNSET,
    )
    return long_reply(json, body)


async def embeddings(call: Call, request: OllamaOldEmbedRequest) -> Reply:
    name = await served_name(call, request.model)
    async with call.model(name) as model:
        pooled_model(model.session, model.name, "embed")
        if not request.prompt:
            return Reply.of(OllamaOldEmbedReply(embedding=[]))
        [output] = await _numbers(call, model, [request.prompt], _params(None, True))
    return Reply.of(OllamaOldEmbedReply(embedding=data_of(output).tolist()))


async def _numbers(call: Call, model: LoadedModel, texts: list[str], params: PoolingParams) -> Results:
    prompts = ((text, params) for text in texts)
    return await numbers_of(call, model, prompts, lambda number: text_label(number, len(texts)), "truncate=true")


def _params(dimensions: int | None, truncate: bool | None) -> PoolingParams:
    """Ollama cuts a text that is too long, unless the request forbids it."""
    try:
        return PoolingParams(dimensions=dimensions, truncate_prompt_tokens=None if truncate is False else -1)
    except RequestError as error:
        raise ApiError(400, str(error), param="dimensions") from None
