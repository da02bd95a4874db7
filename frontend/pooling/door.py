"""What a model that gives numbers adds to the door: words before a text, how long it is, what its vectors become."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from ...protocol.errors import RequestError
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Delta, Prompt
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.pooling.activations import ACTIVATIONS
from ...protocol.pooling.form import Vectors, WantedVectors
from ...protocol.pooling.outputs import PoolingOutput, PoolingRequestOutput
from ...protocol.wire import column
from ..models.pooled_model import PooledModel
from ..receipts.numbers import NumbersReceiptDraft, begun
from ..requests.pending_request import PendingRequest
from ..requests.prompts import ParsedPrompt, require_fitting
from ..requests.request import Notify
from .call_checks import too_many_dimensions

if TYPE_CHECKING:
    from ..models.facts import ModelFacts
    from ..text.tokenizer import Tokenizer

# Makes of a prompt's vectors what its parameters ask for.
Finish = Callable[[Vectors, PoolingParams], numpy.ndarray]


class Affixes(NamedTuple):
    """The special tokens around a text."""

    start: Sequence[int]
    end: Sequence[int]


_NONE = Affixes((), ())


class PooledRequest(PendingRequest):
    """A request whose output is made of the vectors that come with its end."""

    __slots__ = ("_finish", "_vectors", "numbers_receipt", "params")

    def __init__(self, prompt: Prompt, text: str | None, notify: Notify, params: PoolingParams, finish: Finish) -> None:
        super().__init__(prompt, text, notify, str)
        self.params = params
        self._finish = finish
        self._vectors: Vectors | None = None
        self.numbers_receipt: NumbersReceiptDraft | None = None  # if it asks for one

    def _merge(self, delta: Delta) -> None:
        self._vectors = delta.vectors
        super()._merge(delta)

    def take(self) -> Any:
        """Return the result, a `PoolingRequestOutput`; call only once there is one."""
        output = super().take()
        data = None if self._vectors is None else self._finish(self._vectors, self.params)
        return PoolingRequestOutput(
            output.request_id,
            None if data is None else PoolingOutput(data),
            output.prompt_token_ids,
            output.prompt,
            output.finished,
            output.metrics,
            output.num_cached_tokens,
            output.error_code,
            output.error_msg,
            None if data is None or self.numbers_receipt is None else self.numbers_receipt.text(data),
        )


class PoolingDoor:
    def __init__(self, model: PooledModel, plan: MemoryPlan) -> None:
        self.model = model
        # Where tokens see those after them, nothing that was computed of another text counts.
        self.reads_all = model.form.reads_all or plan.has_whole_texts
        self.width = plan.vector_width
        self.longest = min(plan.max_model_len, model.longest or plan.max_model_len)
        self._affixes: Affixes | None = None

    def worded(self, parsed: ParsedPrompt) -> ParsedPrompt:
        """Put the model's words before the prompt's text; token ids stay what they are."""
        if parsed.text is None or parsed.refusal is not None or parsed.pooled is None:
            return parsed
        try:
            return replace(parsed, text=words_before(self.model, parsed.pooled) + parsed.text)
        except RequestError as error:
            return replace(parsed, refusal=str(error))

    def request(
        self, prompt: Prompt, text: str | None, params: PoolingParams, notify: Notify, second_text: int = 0
    ) -> PooledRequest:
        by_token = params.by_token or self.model.form.by_token
        prompt.pooled = WantedVectors(by_token, by_token or self.reads_all, second_text)
        return PooledRequest(prompt, text, notify, params, self.finished)

    def affixes(self, tokenizer: "Tokenizer") -> Affixes:
        """Return the special tokens that the tokenizer puts before and behind a text."""
        if self._affixes is None:
            bare, whole = (tokenizer.encode("a", add_special_tokens=adds) for adds in (False, True))
            start = next((place for place in range(len(whole)) if whole[place : place + len(bare)] == bare), len(whole))
            self._affixes = Affixes(whole[:start], whole[start + len(bare) :])
        return self._affixes

    def fitting(self, ids: Sequence[int], params: PoolingParams, affixes: Affixes = _NONE) -> Sequence[int]:
        """Cut the ids between their affixes if the request allows it; raise if they are too many."""
        if params.logprob_token_ids is not None:
            raise RequestError("logprob_token_ids: this model gives numbers, and no next token. Leave it out.")
        most, width = self.longest, self.width
        if params.dimensions is not None and params.dimensions > width > 0:
            raise RequestError(too_many_dimensions(params.dimensions, width))
        if params.truncate_prompt_tokens is not None and params.truncate_prompt_tokens > 0:
            most = min(most, params.truncate_prompt_tokens)
        require_fitting(ids, params, most)
        if len(ids) <= most or len(affixes.start) + len(affixes.end) >= most:
            return ids[:most]
        if params.truncation_side == "left":
            return [*affixes.start, *ids[len(affixes.start) - most :]]
        return [*ids[: most - len(affixes.end)], *affixes.end]

    def finished(self, vectors: Vectors, params: PoolingParams) -> numpy.ndarray:
        """Return what a request gets: [width], or [tokens, width]; float32."""
        rows = numpy.frombuffer(vectors.values, numpy.float32).reshape(-1, vectors.width)
        if self.model.task == "classify":
            rows = rows if params.use_activation is False else activated(rows, self.model.activation)
        else:
            rows = self._shortened(rows, params)
        return rows if params.by_token or self.model.form.by_token else rows[0]

    def _shortened(self, rows: numpy.ndarray, params: PoolingParams) -> numpy.ndarray:
        normalizes = self.model.normalizes if params.normalize is None else params.normalize
        if params.dimensions is not None:
            rows = rows[:, : params.dimensions]
        elif (own := self.model.cut) is not None:  # sentence-transformers cuts what its modules have made
            rows = _normalized(rows)[:, :own] if self.model.normalizes and params.normalize is None else rows[:, :own]
            normalizes = params.normalize is True
        return _normalized(rows) if normalizes else rows


def words_before(model: PooledModel, params: PoolingParams) -> str:
    """The words that stand before a text; raises if the model has none by the name."""
    if params.instruction is not None:
        return f"Instruct: {params.instruction}\nQuery:"
    return model.prompt(params.prompt_name) or ""


def begin_receipt(request: PendingRequest, facts: "ModelFacts", params: PoolingParams, second_text: int) -> None:
    """Let a request's numbers come with a receipt; raises `RequestError` if it would be too long."""
    if isinstance(request, PooledRequest):
        request.numbers_receipt = begun(facts, request.prompt, params, second_text)


def request_of_labels(prompt: Prompt, text: str | None, params: PoolingParams, notify: Notify) -> PooledRequest:
    """A request for the log-probabilities of next tokens, of a model that writes text."""
    prompt.pooled = WantedVectors(labels=column(params.logprob_token_ids or ()))
    return PooledRequest(prompt, text, notify, params, lambda vectors, _: numpy.frombuffer(vectors.values, "float32"))


def _normalized(rows: numpy.ndarray) -> numpy.ndarray:
    wide = rows.astype(numpy.float64)
    lengths = numpy.sqrt((wide * wide).sum(1, keepdims=True))
    scaled: numpy.ndarray = (wide / numpy.maximum(lengths, 1e-12)).astype(numpy.float32)
    return scaled


def activated(rows: numpy.ndarray, activation: str) -> numpy.ndarray:
    """What a classifier's numbers become: [rows, classes]."""
    found: numpy.ndarray = ACTIVATIONS[activation](rows.astype(numpy.float64)).astype(numpy.float32)
    return found
