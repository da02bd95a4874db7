"""/v2/embed, as Cohere has it: vectors of texts in several formats."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from .....protocol.parameters.pooling import PoolingParams
from ....models.pooled_model import DOCUMENT_PROMPTS, PooledModel
from ....session.session import Session
from ...answers.errors import ApiError
from ...answers.long_json import LongJson
from ...schemas.numbers import CohereEmbedReply, CohereEmbedRequest, Numbers
from .embeddings import data_of, encoded
from .form import NumberForm, ReplyNames
from .results import API_VERSION, Results, num_tokens, pooled_model

# Cohere's kinds of input, and the names under which models keep the words for them.
_KINDS = {
    "search_query": ("query",),
    "search_document": DOCUMENT_PROMPTS,
    "classification": ("Classification",),
    "clustering": ("Clustering",),
}
_UNKNOWN_RANGE = ("int8", "uint8")


@dataclass(slots=True)
class CohereEmbedForm(NumberForm[CohereEmbedRequest]):
    texts_field: ClassVar[str] = "texts"
    cutting: ClassVar[str] = "truncate=END"

    @property
    def num_texts(self) -> int:
        return len(_texts(self.body))

    def prompts(self, session: Session[Any], name: str) -> Iterable[tuple[Any, PoolingParams]]:
        if wrong := next((kind for kind in self._kinds() if kind in _UNKNOWN_RANGE), None):
            why = f"{wrong} needs ranges that models' files don't have; use float, base64 or (u)binary."
            raise ApiError(400, f"embedding_types: {why}", param="embedding_types")
        params = _params(self.body, pooled_model(session, name, "embed"))
        return ((text, params) for text in _texts(self.body))

    def reply(self, outputs: Results, names: ReplyNames, json: LongJson) -> CohereEmbedReply:
        return CohereEmbedReply(
            id=names.id,
            embeddings={kind: json.defer(_vectors(outputs, kind)) for kind in self._kinds()},
            texts=_texts(self.body),
            meta={"api_version": API_VERSION, "billed_units": {"input_tokens": num_tokens(outputs)}},
        )

    def _kinds(self) -> list[str]:
        return list(dict.fromkeys(self.body.embedding_types or ["float"]))


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
    cut = None if request.truncate == "NONE" else request.max_tokens or -1
    return PoolingParams(
        dimensions=request.output_dimension,
        prompt_name=_prompt_name(request.input_type, pooled),
        truncate_prompt_tokens=cut,
        truncation_side="left" if request.truncate == "START" else None,
        receipt=request.receipt is True,
    )


def _prompt_name(kind: str | None, pooled: PooledModel) -> str | None:
    """Name the model's words for such a text. Of Cohere's own kinds a model need not have any."""
    if kind is None:
        return None
    own = next((name for name in (kind, *_KINDS.get(kind, ())) if name in pooled.prompts), None)
    return own if kind in _KINDS else kind


def _vectors(outputs: Results, kind: str) -> Iterator[Numbers]:
    return (converted(data_of(output), kind) for output in outputs)


def converted(data: Any, kind: str) -> Numbers:
    """Write a vector in one of Cohere's formats; raises `ValueError` for one that isn't there.

    Of binary ones a bit says whether a number is above 0, and eight of them are one number.
    """
    if kind in ("float", "base64"):
        return encoded(data, kind)
    if kind not in ("binary", "ubinary"):
        raise ValueError(kind)
    import numpy

    bits = numpy.packbits(data > 0).astype(int)
    return (bits if kind == "ubinary" else bits - 128).tolist()
