"""Scores of how well texts fit a query: what is computed for them, and how the numbers become scores.

A model of vectors embeds each text once, and a score is the cosine of two of them. A reranker reads both texts as one
prompt, in the form that its files say (`PooledModel.pairs`). Nothing here runs a model: `Comparison` says what to run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import ConfigError, LimitError, RequestError
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.pooling.outputs import PoolingOutput, PoolingRequestOutput, ScoringOutput
from ..models.pooled_model import DOCUMENT_PROMPTS, PooledModel
from ..receipts.numbers import NumbersView, receipt_of
from ..requests.plain_types import well_formed
from ..requests.prompts import TextPair

if TYPE_CHECKING:
    import numpy

    from ..text.tokenizer import Tokenizer

Results = Sequence[PoolingRequestOutput[PoolingOutput]]
Scores = list[PoolingRequestOutput[ScoringOutput]]

# As Qwen3-Reranker was published: https://huggingface.co/Qwen/Qwen3-Reranker-0.6B
_QWEN3_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_QWEN3_BEGIN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_QWEN3_END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def text_pairs(queries: Any, documents: Any) -> list[tuple[str, str]]:
    """Pair one query with each document, or as many queries as documents one by one."""
    first, second = _texts("queries", queries), _texts("documents", documents)
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise RequestError(
            f"There are {len(first):,} queries and {len(second):,} documents: give one query, or one for each document."
        )
    return list(zip(first, second, strict=True))


def _texts(name: str, value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{name} must be a text or a list of at least one text.")
    return texts


@dataclass(frozen=True)
class Comparison:
    """Prompts to compute, each group with its parameters, and what makes scores of their results, in their order."""

    groups: list[tuple[Iterable[Any], PoolingParams]]
    scores: Callable[[Results], Scores]
    pairs: Sequence[tuple[int, int]] = ()  # the results whose cosines the scores are
    num_queries: int = 0  # prompts of queries alone, which stand first
    num_documents: int = 0  # prompts of documents, alone or with their queries

    def prompts(self) -> Iterator[tuple[Any, PoolingParams]]:
        return ((prompt, params) for prompts, params in self.groups for prompt in prompts)

    def label(self, number: int) -> str:
        """The name of a prompt in a refusal; empty if there is no other."""
        if number < self.num_queries:
            return "The query" if self.num_queries == 1 else f"Query {number}"
        return "" if self.num_documents == 1 else f"Text {number - self.num_queries}"


def comparison(
    pairs: Sequence[tuple[str, str]],
    model: PooledModel,
    tokenizer: "Callable[[], Tokenizer]",
    longest: int,
    params: PoolingParams,
) -> Comparison:
    """Plan a score for each pair. `longest`: most tokens of a prompt; `tokenizer` is read by rerankers alone."""
    if params.by_token:
        raise RequestError("by_token: a score is made of one vector for each text; leave it out.")
    if params.truncation_side == "left" and model.task != "embed":
        raise RequestError("truncation_side: a document is cut at its end; leave it out.")
    if model.task == "embed":
        return _of_vectors(pairs, model, params)
    if model.pairs is None:
        raise ConfigError(f"score takes a model with one label, and this one has {len(model.labels)}: use classify.")
    writer = PairWriter(model, tokenizer(), longest, params)
    own = msgspec.structs.replace(params, instruction=None, prompt_name=None)
    activation = further_activation(model, params.use_activation)
    groups: list[tuple[Iterable[Any], PoolingParams]] = [(writer.prompts(pairs), own)]
    return Comparison(
        groups, lambda results: [_score_of(each, activation) for each in results], num_documents=len(pairs)
    )


def further_activation(model: PooledModel, use_activation: bool | None) -> str:
    """What a score goes through behind the door, which applies the activation of classes: none if that of scores is
    another."""
    return "" if use_activation is False or model.score_activation == model.activation else model.score_activation


def cosine(first: "numpy.ndarray", second: "numpy.ndarray") -> float:
    """Return the cosine of the angle between two vectors; 0 if one of them is."""
    import numpy

    a, b = first.astype(numpy.float64), second.astype(numpy.float64)
    length = float(numpy.sqrt((a * a).sum()) * numpy.sqrt((b * b).sum()))
    return float((a * b).sum()) / length if length > 0 else 0.0


_Similarity = Callable[["numpy.ndarray", "numpy.ndarray"], float]
# As sentence-transformers compares two vectors, by its names: the higher, the more alike.
SIMILARITIES: dict[str, _Similarity] = {
    "cosine": cosine,
    "dot": lambda a, b: float((a.astype(float) * b.astype(float)).sum()),
    "euclidean": lambda a, b: -float(((a.astype(float) - b.astype(float)) ** 2).sum() ** 0.5),
    "manhattan": lambda a, b: -float(abs(a.astype(float) - b.astype(float)).sum()),
}


# --- by vectors ------------------------------------------------------------------------------------------------------


def _of_vectors(pairs: Sequence[tuple[str, str]], model: PooledModel, params: PoolingParams) -> Comparison:
    """Each different text is computed once, a query with the model's words for queries before it."""
    queries, documents = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
    of_query, of_document = _worded(model, params)
    similarity = SIMILARITIES[model.similarity]

    left = {query: place for place, query in enumerate(queries)}
    right = {document: place for place, document in enumerate(documents, start=len(queries))}
    places = [(left[query], right[document]) for query, document in pairs]

    def scores(results: Results) -> Scores:
        return [_compared(results[first], results[second], similarity) for first, second in places]

    return Comparison([(queries, of_query), (documents, of_document)], scores, places, len(queries), len(documents))


def _worded(model: PooledModel, params: PoolingParams) -> tuple[PoolingParams, PoolingParams]:
    """Parameters of queries and of documents, with the model's own words where it has some and the call names none."""
    names = model.prompts
    query = params
    if params.instruction is None and params.prompt_name is None and "query" in names:
        query = msgspec.structs.replace(params, prompt_name="query")
    of_documents = next((name for name in DOCUMENT_PROMPTS if name in names), None)
    return query, msgspec.structs.replace(params, instruction=None, prompt_name=of_documents)


def _compared(
    query: PoolingRequestOutput[PoolingOutput], document: PoolingRequestOutput[PoolingOutput], similarity: _Similarity
) -> PoolingRequestOutput[ScoringOutput]:
    failed = next((each for each in (query, document) if each.outputs is None), None)
    score = None
    if query.outputs is not None and document.outputs is not None:
        score = ScoringOutput(similarity(query.outputs.data, document.outputs.data))
    return PoolingRequestOutput(
        document.request_id,
        score,
        query.prompt_token_ids + document.prompt_token_ids,
        None,
        metrics=document.metrics,
        num_cached_tokens=query.num_cached_tokens + document.num_cached_tokens,
        error_code=200 if failed is None else failed.error_code,
        error_msg=None if failed is None else failed.error_msg,
        receipt=receipt_of([query, document], lambda: NumbersView(pairs=[(0, 1)])),
    )


def _score_of(result: PoolingRequestOutput[PoolingOutput], activation: str) -> PoolingRequestOutput[ScoringOutput]:
    from .door import activated  # numpy, which few front ends need

    scored: PoolingRequestOutput[Any] = result
    if result.outputs is not None:
        scored.outputs = ScoringOutput(float(activated(result.outputs.data, activation)[0]))
    return scored


# --- by a reranker ---------------------------------------------------------------------------------------------------


class PairWriter:
    """Writes a query and a document as one prompt. Only a document is ever cut."""

    def __init__(self, model: PooledModel, tokenizer: "Tokenizer", longest: int, params: PoolingParams) -> None:
        self._form = model.pairs
        self._tokenizer = tokenizer
        self._longest = longest
        self._cut = params.truncate_prompt_tokens
        self._instruction = params.instruction
        if self._instruction is None:
            self._instruction = model.prompt(params.prompt_name) or None
        self._words = ""
        if self._form == "tokenizer" and self._instruction is not None:
            if params.instruction is not None:
                raise RequestError("This model takes no instruction: it reads a query and a document alone.")
            self._words = self._instruction

    def prompts(self, pairs: Iterable[tuple[str, str]]) -> Iterator[TextPair | RequestError]:
        """One prompt for each pair; a pair that can't be written is refused alone."""
        for query, document in pairs:
            try:
                yield self._joined(query, document) if self._form == "tokenizer" else self._written(query, document)
            except RequestError as error:
                yield error

    @property
    def _most(self) -> int:
        """The most tokens that a prompt may have where documents are cut."""
        return self._longest if self._cut in (None, -1) else min(self._longest, self._cut or 0)

    def _joined(self, query: str, document: str) -> TextPair:
        """Join both texts as the tokenizer does, with its special tokens and types."""
        found = self._tokenizer.backend.encode(well_formed(self._words + query), well_formed(document))
        ids, types, texts = found.ids, found.type_ids, found.sequence_ids
        if self._cut is not None and (surplus := len(ids) - self._most) > 0:
            own = [index for index, text in enumerate(texts) if text == 1]
            if len(own) <= surplus:
                raise self._no_room(query)
            dropped = set(own[-surplus:])
            kept = [index for index in range(len(ids)) if index not in dropped]
            ids, types = [ids[index] for index in kept], [types[index] for index in kept]
        return TextPair(ids, types.index(1) if 1 in types else 0)

    def _written(self, query: str, document: str) -> TextPair:
        """Write a template's words around the query and as much of the document as there is room for."""
        ids = self._ids(query, document)
        if self._cut is None or len(ids) <= self._most:
            return TextPair(ids)
        own = self._tokenizer.encode(document, add_special_tokens=False)
        room = len(own) - (len(ids) - self._most)
        while room > 0:  # a cut text may have another number of tokens
            ids = self._ids(query, self._tokenizer.decode(own[:room], skip_special_tokens=False))
            if len(ids) <= self._most:
                return TextPair(ids)
            room -= len(ids) - self._most
        raise self._no_room(query)

    def _ids(self, query: str, document: str) -> list[int]:
        if self._form == "qwen3":
            words = f"<Instruct>: {self._instruction or _QWEN3_TASK}\n<Query>: {query}\n<Document>: {document}"
            return self._tokenizer.encode(_QWEN3_BEGIN + words + _QWEN3_END, add_special_tokens=False)
        texts = {"system": self._instruction, "query": query, "document": document}
        messages = [{"role": role, "content": text} for role, text in texts.items() if text is not None]
        ids: list[int] = self._tokenizer.apply_chat_template(messages, tokenize=True)
        return ids

    def _no_room(self, query: str) -> LimitError:
        length = len(self._tokenizer.encode(query, add_special_tokens=False))
        return LimitError(
            f"The query has {length:,} tokens, and {self._most:,} for both texts leave nothing for the document. "
            "Shorten it."
        )
