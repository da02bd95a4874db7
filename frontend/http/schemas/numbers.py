"""Bodies of the endpoints that answer with numbers, in the forms of OpenAI, vLLM, Cohere, Jina and Ollama."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .sampling import Count, FreeForm, TokenId

Texts = Annotated[
    str | list[str | TokenId | list[TokenId]],
    Meta(description="a text, a list of texts, token ids, or a list of such lists"),
]
_Cut = Annotated[
    Annotated[int, Meta(ge=-1)] | None,
    Meta(description="cut longer texts after so many tokens; -1: where the model ends"),
]
Receipt = Annotated[bool | None, Meta(description="give the reply a receipt, by which it can be verified")]
_NoValue = Annotated[None, Meta(description="only null: there is nothing to choose here")]
Encoding = Literal["float", "base64"]
Numbers = Any  # a list of numbers, or base64 of float32 in little-endian order


class NumbersRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields that all of these requests have."""

    model: Annotated[str | None, Meta(description="a name from /v1/models")] = None
    user: Annotated[str | None, Meta(description="without effect")] = None
    request_id: Annotated[str | None, Meta(description="without effect")] = None
    priority: Annotated[Literal[0] | None, Meta(description="without effect")] = None
    truncate_prompt_tokens: _Cut = None
    truncation_side: Annotated[
        Literal["left", "right"] | None, Meta(description="where a longer text is cut; right keeps its beginning")
    ] = None
    receipt: Receipt = None
    mm_processor_kwargs: _NoValue = None
    cache_salt: _NoValue = None
    lora_name: _NoValue = None


class WordedRequest(NumbersRequest, kw_only=True):
    prompt_name: Annotated[str | None, Meta(description="which of the model's prompts stands before each text")] = None
    instruction: Annotated[str | None, Meta(description="a task in words, for models that take one")] = None


class EmbeddingRequest(WordedRequest, kw_only=True):
    input: Texts
    encoding_format: Encoding | None = None
    dimensions: Annotated[Count | None, Meta(description="numbers of a vector to keep, the first ones")] = None
    normalize: Annotated[bool | None, Meta(description="scale vectors to length 1; default: as the model says")] = None
    add_special_tokens: Annotated[Literal[True] | None, Meta(description="without effect: they are added")] = None


class NumbersUsage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    total_tokens: int


class NumbersReply(msgspec.Struct, kw_only=True):
    """The fields that replies with a list have, besides the list."""

    id: str
    created: int
    model: str
    usage: NumbersUsage
    object: Literal["list"] = "list"
    receipt: str | UnsetType = UNSET


class Embedding(msgspec.Struct, kw_only=True):
    index: int
    embedding: Numbers
    object: Literal["embedding"] = "embedding"


class EmbeddingList(NumbersReply, kw_only=True):
    data: list[Embedding]
    notice: str | UnsetType = UNSET  # about vectors that were cut


class PoolingRequest(EmbeddingRequest, kw_only=True):
    by_token: Annotated[bool | None, Meta(description="a row of numbers for each token")] = None
    use_activation: Annotated[bool | None, Meta(description="probabilities of classes; false: their scores")] = None
    task: Annotated[
        Literal["embed", "classify", "token_embed", "token_classify"] | None,
        Meta(description="what the model is to give; those of tokens are by_token"),
    ] = None


class Pooled(msgspec.Struct, kw_only=True):
    index: int
    data: Numbers  # of the text, or a list for each token
    object: Literal["pooling"] = "pooling"


class PooledList(NumbersReply, kw_only=True):
    data: list[Pooled]
    notice: str | UnsetType = UNSET  # about vectors that were cut


class ClassifyRequest(WordedRequest, kw_only=True):
    input: Texts
    use_activation: Annotated[bool | None, Meta(description="probabilities; false: scores")] = None


class Classified(msgspec.Struct, kw_only=True):
    index: int
    label: str | None
    probs: list[float]
    num_classes: int


class ClassifiedList(NumbersReply, kw_only=True):
    data: list[Classified]
    labels: list[str]  # the classes' names, in the order of `probs`


Sides = str | list[str]


class ScoreRequest(WordedRequest, kw_only=True):
    """vLLM's: `text_1` with `text_2`, or under their newer names `queries` with `documents`."""

    text_1: Sides | None = None
    text_2: Sides | None = None
    queries: Sides | None = None
    documents: Sides | None = None
    use_activation: bool | None = None


class Score(msgspec.Struct, kw_only=True):
    index: int
    score: float
    object: Literal["score"] = "score"


class ScoreList(NumbersReply, kw_only=True):
    data: list[Score]


class RerankText(msgspec.Struct, kw_only=True):
    text: str


class RerankRequest(WordedRequest, kw_only=True):
    """Cohere's and Jina's."""

    query: Annotated[str, Meta(min_length=1)]
    documents: list[str | RerankText]
    top_n: Annotated[Count | None, Meta(description="how many results to return, the best ones")] = None
    return_documents: Annotated[bool | None, Meta(description="add the texts to the results")] = None
    max_tokens_per_doc: Annotated[Count | None, Meta(description="cut longer documents after so many tokens")] = None
    max_chunks_per_doc: _NoValue = None
    rank_fields: _NoValue = None
    truncation: Annotated[bool | None, Meta(description="false: refuse texts that are too long")] = None
    use_activation: bool | None = None


class Ranked(msgspec.Struct, kw_only=True):
    index: int
    relevance_score: float
    document: RerankText | UnsetType = UNSET


class RerankReply(msgspec.Struct, kw_only=True):
    """The results, the best first."""

    id: str
    model: str
    results: list[Ranked]
    usage: NumbersUsage
    meta: FreeForm  # Cohere's count of the same tokens
    receipt: str | UnsetType = UNSET


class CohereEmbedRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: str | None = None
    texts: list[str] | None = None
    inputs: Annotated[list[FreeForm] | None, Meta(description="each with a content of texts alone")] = None
    images: Annotated[list[str] | None, Meta(description="refused: vectors are of texts")] = None
    input_type: Annotated[
        str | None,
        Meta(description="search_query, search_document, … or a name of the model's prompts: words before each text"),
    ] = None
    embedding_types: list[Literal["float", "base64", "binary", "ubinary", "int8", "uint8"]] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None
    max_tokens: Annotated[Count | None, Meta(description="cut longer texts after so many tokens")] = None
    output_dimension: Count | None = None
    priority: Annotated[int | None, Meta(description="without effect")] = None
    receipt: Receipt = None


class CohereEmbedReply(msgspec.Struct, kw_only=True):
    id: str
    embeddings: dict[str, list[Numbers]]
    texts: list[str]
    meta: FreeForm
    notice: str | UnsetType = UNSET  # about vectors that were cut
    response_type: Literal["embeddings_by_type"] = "embeddings_by_type"
    receipt: str | UnsetType = UNSET
