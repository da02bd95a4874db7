"""/v2/embed, as Cohere has it: vectors of texts in several formats."""

from collections.abc import Iterator
from typing import Any

from .....protocol.parameters.pooling import PoolingParams
from ....models.pooled_model import PooledModel
from ...answers.errors import ApiError
from ...answers.long_json import LongJson
from ...endpoint import AnyReply, Call
from ...schemas.numbers import CohereEmbedReply, CohereEmbedRequest, Numbers
from .embeddings import data_of, encoded
from .results import Results, check_texts, long_reply, num_tokens, numbers, pooled_model

# Cohere's kinds of input, and the names under which models keep the words for them.
_KINDS = {
    "search_query": ("query",),
    "search_document": ("document", "passage", "corpus"),
    "classification": ("Classification",),
    "clustering": ("Clustering",),
}
_UNKNOWN_RANGE = ("int8", "uint8")


async def embed(call: Call, request: CohereEmbedRequest) -> AnyReply:
    texts = _texts(request)
    check_texts(call, len(texts), "texts")
    kinds = list(dict.fromkeys(request.embedding_types or ["float"]))
    if wrong := next((kind for kind in kinds if kind in _UNKNOWN_RANGE), None):
        why = f"embedding_types: {wrong} needs ranges that models' files don't have; use float, base64 or (u)binary."
        raise ApiError(400, why, param="embedding_types")
    async with call.model(request.model) as model:
        pooled = pooled_model(model, "embed")
        outputs = await numbers(call, model, texts, _params(request, pooled))
    json = LongJson()
    tokens = num_tokens(outputs)
    body = CohereEmbedReply(
        id=call.active_request.id,
        embeddings={kind: json.defer(_vectors(outputs, kind)) for kind in kinds},
        texts=texts,
        meta={"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}},
    )
    return long_reply(json, body)


def _texts(request: CohereEmbedRequest) -> list[str]:
    if request.images:
        raise ApiError(400, "images: models here give vectors of texts alone.", param="images")
    if (request.texts is None) == (request.inputs is None):
        raise ApiError(400, "Give texts, a list of texts, or inputs.", param="texts")
    return request.texts or [_text(each) for each in request.inputs or ()]


def _text(given: dict[str, Any]) -> str:
    content = given.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ApiError(400, 'inputs: each is {"content": [{"type": "text", "text": …}]}.', param="inputs")
    return "\n".join(text for text in texts if text is not None)


def _params(request: CohereEmbedRequest, pooled: PooledModel) -> PoolingParams:
    if request.truncate == "START":
        raise ApiError(400, "truncate: texts are cut at their end (END) or refused (NONE).", param="truncate")
    cut = None if request.truncate == "NONE" else request.max_tokens or -1
    return PoolingParams(
        dimensions=request.output_dimension,
        prompt_name=_prompt_name(request.input_type, pooled),
        truncate_prompt_tokens=cut,
    )


def _prompt_name(kind: str | None, pooled: PooledModel) -> str | None:
    """The name of the model's words for such a text. Of Cohere's own kinds a model need not have any."""
    if kind is None:
        return None
    own = next((name for name in (kind, *_KINDS.get(kind, ())) if name in pooled.prompts), None)
    return own if kind in _KINDS else kind


def _vectors(outputs: Results, kind: str) -> Iterator[Numbers]:
    """A vector as numbers; of binary ones a bit says whether a number is above 0, and eight of them are one number."""
    import numpy

    for output in outputs:
        data = data_of(output)
        if kind in ("float", "base64"):
            yield encoded(data, kind)
        else:
            bits = numpy.packbits(data > 0).astype(int)
            yield (bits if kind == "ubinary" else bits - 128).tolist()
