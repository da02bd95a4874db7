"""Results of prompts that end in numbers, as `protocol/outputs.py` has those of answers."""

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..outputs import PlainOutput, RequestMetrics


@dataclass(slots=True)
class PoolingOutput(PlainOutput):
    """Numbers as the model gives them: of the text, or a row of them for each token."""

    data: Any  # a float32 array


@dataclass(slots=True)
class EmbeddingOutput(PlainOutput):
    embedding: list[float] = field(default_factory=list)

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass(slots=True)
class ClassificationOutput(PlainOutput):
    probs: list[float] = field(default_factory=list)
    label: str | None = None  # the likeliest class
    labels: list[str] = field(default_factory=list)  # the classes' names, in the order of `probs`

    @property
    def num_classes(self) -> int:
        return len(self.probs)


@dataclass(slots=True)
class ScoringOutput(PlainOutput):
    score: float


OutputT = TypeVar("OutputT", PoolingOutput, EmbeddingOutput, ClassificationOutput, ScoringOutput)


@dataclass(slots=True)
class PoolingRequestOutput(PlainOutput, Generic[OutputT]):
    """The result of one prompt. `outputs` is None if it failed; `error_msg` says why."""

    request_id: str
    outputs: OutputT | None
    prompt_token_ids: list[int]
    prompt: str | None = None
    finished: bool = True
    metrics: RequestMetrics | None = None
    num_cached_tokens: int = 0
    error_code: int = 200
    error_msg: str | None = None
    receipt: str | None = None  # if it was asked for
