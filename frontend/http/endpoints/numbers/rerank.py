"""/v1/rerank and its older and newer paths, and /v1/score: how well documents fit a query."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from .....protocol.errors import ConfigError
from .....protocol.parameters.pooling import PoolingParams
from ....pooling.scores import Comparison, comparison, text_pairs
from ....receipts.numbers import NumbersView
from ....session.session import Session
from ...answers.errors import ApiError
from ...answers.long_json import LongJson
from ...schemas.numbers import (
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
from .form import NumberForm, ReplyNames, RequestT
from .results import API_VERSION, Results, pooled_model

_NOTHING = Comparison([], lambda results: [])


@dataclass(slots=True)
class _ComparedForm(NumberForm[RequestT]):
    """A request whose texts are compared."""

    compared: Comparison = field(default_factory=lambda: _NOTHING)

    def label(self, number: int) -> str:
        return self.compared.label(number)

    def compare(
        self, session: Session[Any], name: str, pairs: Sequence[tuple[str, str]], params: PoolingParams
    ) -> Iterable[tuple[Any, PoolingParams]]:
        pooled = pooled_model(session, name)
        try:
            self.compared = comparison(pairs, pooled, lambda: session.tokenizer, session.longest_pooled, params)
        except ConfigError as error:
            raise ApiError(400, str(error), param="model") from None
        return self.compared.prompts()

    def view(self) -> NumbersView:
        return NumbersView(pairs=list(self.compared.pairs))

    def scores(self, outputs: Results) -> list[float]:
        return [0.0 if each.outputs is None else each.outputs.score for each in self.compared.scores(outputs)]


@dataclass(slots=True)
class RerankForm(_ComparedForm[RerankRequest]):
    texts_field: ClassVar[str] = "documents"

    @property
    def num_texts(self) -> int:
        return len(self.body.documents)

    @property
    def takes_long(self) -> bool:
        return self.body.max_tokens_per_doc is not None

    def prompts(self, session: Session[Any], name: str) -> Iterable[tuple[Any, PoolingParams]]:
        documents, most, params = self._texts(), self.body.max_tokens_per_doc, given_params(self.body)
        if params.truncate_prompt_tokens is None and (self.body.truncation or most):
            params = msgspec.structs.replace(params, truncate_prompt_tokens=-1)
        if most is not None:
            documents = shortened(session.tokenizer, documents, most)
        return self.compare(session, name, [(self.body.query, each) for each in documents], params)

    def view(self) -> NumbersView:
        body, pairs = self.body, list(self.compared.pairs)
        return NumbersView(pairs=pairs, most_results=body.top_n or 0, document_tokens=body.max_tokens_per_doc or 0)

    def reply(self, outputs: Results, names: ReplyNames, json: LongJson) -> RerankReply:
        tokens, found = usage(outputs), self.scores(outputs)
        order = sorted(range(len(found)), key=lambda index: -found[index])[: self.body.top_n]
        results = [Ranked(index=index, relevance_score=found[index]) for index in order]
        if self.body.return_documents:
            texts = self._texts()
            for each in results:
                each.document = RerankText(text=texts[each.index])
        billed = {"input_tokens": tokens.total_tokens, "search_units": 1}
        return RerankReply(
            id=names.id,
            model=self.body.model or names.model,
            results=results,
            usage=tokens,
            meta={"api_version": API_VERSION, "billed_units": billed, "tokens": {"input_tokens": tokens.total_tokens}},
        )

    def _texts(self) -> list[str]:
        return [each if isinstance(each, str) else each.text for each in self.body.documents]


def shortened(tokenizer: Any, documents: Sequence[str], most: int) -> list[str]:
    """Cut each document behind so many of its tokens."""
    return [_cut(text, tokenizer.backend.encode(text, add_special_tokens=False).offsets, most) for text in documents]


def _cut(text: str, offsets: Sequence[tuple[int, int]], most: int) -> str:
    return text if len(offsets) <= most else text[: offsets[most - 1][1]]


@dataclass(slots=True)
class ScoreForm(_ComparedForm[ScoreRequest]):
    texts_field: ClassVar[str] = "text_2"

    @property
    def num_texts(self) -> int:
        return len(self._pairs())

    def prompts(self, session: Session[Any], name: str) -> Iterable[tuple[Any, PoolingParams]]:
        return self.compare(session, name, self._pairs(), given_params(self.body))

    def reply(self, outputs: Results, names: ReplyNames, json: LongJson) -> ScoreList:
        tokens = usage(outputs)
        return ScoreList(
            id=names.id,
            created=names.created,
            model=self.body.model or names.model,
            data=[Score(index=index, score=each) for index, each in enumerate(self.scores(outputs))],
            usage=tokens,
        )

    def _pairs(self) -> list[tuple[str, str]]:
        return text_pairs(self._side("text_1", "queries"), self._side("text_2", "documents"))

    def _side(self, name: str, newer: str) -> Sides:
        given, also = getattr(self.body, name), getattr(self.body, newer)
        if (given is None) == (also is None):
            raise ApiError(400, f"Give {name}, or {newer} instead of it: a text or a list of texts.", param=name)
        return given if given is not None else also  # type: ignore[no-any-return]
