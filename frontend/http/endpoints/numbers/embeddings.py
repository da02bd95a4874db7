"""/v1/embeddings, /v1/classify and /pooling, as OpenAI and vLLM have them: the numbers of texts or token ids."""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .....protocol.parameters.pooling import PoolingParams
from ....models.pooled_model import PooledModel
from ....pooling.calls import classified
from ....session.session import Session
from ...answers.errors import ApiError
from ...answers.long_json import LongJson
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
)
from .form import NumberForm, ReplyNames, RequestT
from .results import Results, num_tokens, pooled_model

_TASKS = {"embed": "embed", "token_embed": "embed", "classify": "classify", "token_classify": "classify"}


@dataclass(slots=True)
class TextsForm(NumberForm[RequestT]):
    """A request whose `input` is texts or token ids, each computed by itself."""

    pooled: PooledModel = field(init=False)  # once its prompts are made

    @property
    def num_texts(self) -> int:
        return len(self._texts())

    def prompts(self, session: Session[Any], name: str) -> Iterable[tuple[Any, PoolingParams]]:
        self.pooled = self.fitting(session, name)
        params = self.params()
        return ((prompt, params) for prompt in self._texts())

    def fitting(self, session: Session[Any], name: str) -> PooledModel:
        """What the model gives; refuses one that doesn't give what the request is for."""
        raise NotImplementedError

    def params(self) -> PoolingParams:
        return given_params(self.body)

    def _texts(self) -> list[str | list[int]]:
        return as_prompts(self.body.input, "input")  # type: ignore[attr-defined]  # all of these have it


@dataclass(slots=True)
class EmbeddingsForm(TextsForm[EmbeddingRequest]):
    def fitting(self, session: Session[Any], name: str) -> PooledModel:
        pooled = pooled_model(session, name, "embed")
        if pooled.form.by_token:
            raise ApiError(400, f"{name} gives a vector for each token; use /pooling.", param="model")
        return pooled

    def reply(self, outputs: Results, names: ReplyNames, json: LongJson) -> EmbeddingList:
        return EmbeddingList(
            id=names.id,
            created=names.created,
            model=self.body.model or names.model,
            data=json.defer(self._embeddings(outputs)),
            usage=usage(outputs),
        )

    def _embeddings(self, outputs: Results) -> Iterator[Embedding]:
        for index, output in enumerate(outputs):
            yield Embedding(index=index, embedding=encoded(data_of(output), self.body.encoding_format))


@dataclass(slots=True)
class PoolingForm(TextsForm[PoolingRequest]):
    def fitting(self, session: Session[Any], name: str) -> PooledModel:
        task = self.body.task
        return pooled_model(session, name, _TASKS[task] if task is not None else None)  # type: ignore[arg-type]

    def params(self) -> PoolingParams:
        params, task = given_params(self.body), self.body.task
        if task is not None and task.startswith("token_"):
            params = msgspec.structs.replace(params, by_token=True)
        return params

    def reply(self, outputs: Results, names: ReplyNames, json: LongJson) -> PooledList:
        return PooledList(
            id=names.id,
            created=names.created,
            model=self.body.model or names.model,
            data=json.defer(self._pooled(outputs, json)),
            usage=usage(outputs),
        )

    def _pooled(self, outputs: Results, json: LongJson) -> Iterator[Pooled]:
        encoding = self.body.encoding_format
        for index, output in enumerate(outputs):
            data = data_of(output)
            is_long = data.ndim > 1 and encoding != "base64"
            values = json.defer(row.tolist() for row in data) if is_long else encoded(data, encoding)
            yield Pooled(index=index, data=values)


@dataclass(slots=True)
class ClassifyForm(TextsForm[ClassifyRequest]):
    def fitting(self, session: Session[Any], name: str) -> PooledModel:
        pooled = pooled_model(session, name, "classify")
        if pooled.form.by_token:
            raise ApiError(400, f"{name} classifies each token; use /pooling.", param="model")
        return pooled

    def reply(self, outputs: Results, names: ReplyNames, json: LongJson) -> ClassifiedList:
        tokens = usage(outputs)
        found = [output.outputs for output in classified(outputs, self.pooled) if output.outputs is not None]
        return ClassifiedList(
            id=names.id,
            created=names.created,
            model=self.body.model or names.model,
            data=[
                Classified(index=index, label=each.label, probs=each.probs, num_classes=each.num_classes)
                for index, each in enumerate(found)
            ],
            labels=list(found[0].labels) if found else [],
            usage=tokens,
        )


def given_params(request: Any) -> PoolingParams:
    """Take the parameters that a request gives; null is the same as not given."""
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
