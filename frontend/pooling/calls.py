"""The calls of `LLM` and `AsyncLLM` that give numbers: `embed`, `encode`, `classify`, `score`.

They run as `generate` does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...protocol.errors import ConfigError, RequestError
from ...protocol.fields.rules import FLAG
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.pooling.outputs import ClassificationOutput, EmbeddingOutput, PoolingOutput, PoolingRequestOutput
from ..call_arguments import named_arguments
from ..models.pooled_model import PooledModel
from ..session.threads import in_own_thread
from .call_checks import checked, checked_for_one, listed, refuse_pairs, require, width_of

if TYPE_CHECKING:
    import numpy

    from ..session.session import Session
    from .decide import DecisionPlan
    from .decisions import Decision
    from .scores import Scores

    Embeddings = list[PoolingRequestOutput[EmbeddingOutput]] | numpy.ndarray

Results = list[PoolingRequestOutput[PoolingOutput]]
Classes = list[PoolingRequestOutput[ClassificationOutput]]
GivenParams = PoolingParams | Sequence[PoolingParams] | None  # of a sequence each prompt has one
Found = TypeVar("Found")


@dataclass(frozen=True)
class NumbersCall(Generic[Found]):
    """What a call computes: prompts, each group with its parameters, and what it makes of their results."""

    groups: Iterable[tuple[Iterable[Any], Any]]
    finish: Callable[[Results], Found]


class PoolingCalls:
    """The pooling calls of `LLM`."""

    _session: "Session[Any]"
    generate: Callable[[Any, Any, bool], Any]

    @named_arguments
    def embed(
        self, prompts: Any, pooling_params: GivenParams = None, use_tqdm: bool = True, as_numpy: bool = False
    ) -> "Embeddings":
        """Embed texts or lists of token ids: `.outputs.embedding` of each is its vector.

        With `as_numpy` the vectors come as one float32 array, [prompts, numbers]; a prompt that fails then raises.
        """
        return self._computed(embed_call(self._session, prompts, pooling_params, as_numpy), use_tqdm)

    @named_arguments
    def encode(self, prompts: Any, pooling_params: GivenParams = None, use_tqdm: bool = True) -> Results:
        """Give the model's numbers for each prompt as an array, `.outputs.data`; with `by_token` a row a token.

        A model that writes text gives the log-probabilities of the next tokens in `logprob_token_ids`.
        """
        return self._computed(encode_call(self._session, prompts, pooling_params), use_tqdm)

    @named_arguments
    def classify(self, prompts: Any, pooling_params: GivenParams = None, use_tqdm: bool = True) -> Classes:
        """Classify prompts: `.outputs.probs` has each class's probability, `.label` the likeliest one's name."""
        return self._computed(classify_call(self._session, prompts, pooling_params), use_tqdm)

    @named_arguments
    def score(
        self, queries: Any, documents: Any, pooling_params: GivenParams = None, use_tqdm: bool = True
    ) -> "Scores":
        """Score documents for one query, or each for its own: `.outputs.score`, the higher the better a text fits.

        A reranker reads both texts together; with any other model it is the cosine of their vectors.
        """
        return self._computed(score_call(self._session, queries, documents, pooling_params), use_tqdm)

    @named_arguments
    def decide(self, input: Any, questions: Any, use_tqdm: bool = True, receipt: bool = False) -> "list[Decision]":
        """Answer questions about a text or a conversation by the probabilities of labels; no text is written.

        Questions are those of OpenAI's /v1/decisions: `predicate`, `choice` and `score`. One result for each input,
        whose `.answers` have `.probability`, or `.choice` or `.score` with `.probabilities`, and `.label_mass`.
        With `receipt` each result has one.
        """
        return self._computed(decide_call(self._session, input, questions, receipt), use_tqdm)

    def _computed(self, call: NumbersCall[Found], use_tqdm: bool) -> Found:
        results: Results = []
        for prompts, params in call.groups:
            results += self.generate(prompts, params, use_tqdm)
        return call.finish(results)


class AsyncPoolingCalls:
    """The pooling calls of `AsyncLLM`."""

    ready: Callable[[], Any]
    generate: Callable[[Any, Any], Any]

    @property
    def _session(self) -> "Session[Any]":
        raise NotImplementedError  # it is `AsyncLLM`'s

    @named_arguments
    async def embed(self, prompts: Any, pooling_params: GivenParams = None, as_numpy: bool = False) -> "Embeddings":
        """Embed texts or lists of token ids, as `LLM.embed` does."""
        return await self._computed(lambda: embed_call(self._session, prompts, pooling_params, as_numpy))

    @named_arguments
    async def encode(self, prompts: Any, pooling_params: GivenParams = None) -> Results:
        """Give the model's numbers for each prompt, as `LLM.encode` does."""
        return await self._computed(lambda: encode_call(self._session, prompts, pooling_params))

    @named_arguments
    async def classify(self, prompts: Any, pooling_params: GivenParams = None) -> Classes:
        """Classify prompts, as `LLM.classify` does."""
        return await self._computed(lambda: classify_call(self._session, prompts, pooling_params))

    @named_arguments
    async def score(self, queries: Any, documents: Any, pooling_params: GivenParams = None) -> "Scores":
        """Score documents for one query, or each for its own, as `LLM.score` does."""
        return await self._computed(lambda: score_call(self._session, queries, documents, pooling_params))

    @named_arguments
    async def decide(self, input: Any, questions: Any, receipt: bool = False) -> "list[Decision]":
        """Answer questions by the probabilities of labels, as `LLM.decide` does."""
        await self.ready()
        return await self._results_of(
            await in_own_thread(lambda: decide_call(self._session, input, questions, receipt))
        )

    async def _computed(self, plan: Callable[[], NumbersCall[Found]]) -> Found:
        await self.ready()
        return await self._results_of(plan())

    async def _results_of(self, call: NumbersCall[Found]) -> Found:
        results: Results = []
        for prompts, params in call.groups:
            results += await self.generate(prompts, params)
        return call.finish(results)


# --- what each of them computes --------------------------------------------------------------------------------------


def embed_call(session: "Session[Any]", prompts: Any, params: Any, as_numpy: bool) -> "NumbersCall[Embeddings]":
    wanted = checked_for_one("embed", require(session, "embed", "embed"), params, width_of(session))
    if FLAG.checked("as_numpy", as_numpy, RequestError) and any(each.receipt for each in listed(wanted)):
        raise RequestError("receipt: an array has none; leave as_numpy out.")
    return NumbersCall([(prompts, wanted)], _stacked if as_numpy else _embedded)


def encode_call(session: "Session[Any]", prompts: Any, params: Any) -> NumbersCall[Results]:
    wanted = checked(params, width_of(session))
    if any(each.logprob_token_ids is None for each in listed(wanted)):
        require(session, "encode", None)
    return NumbersCall([(prompts, wanted)], lambda results: results)


def classify_call(session: "Session[Any]", prompts: Any, params: Any) -> "NumbersCall[Classes]":
    model = require(session, "classify", "classify")
    refuse_pairs(prompts)
    wanted = checked_for_one("classify", model, params, width_of(session))
    return NumbersCall([(prompts, wanted)], lambda results: classified(results, model))


def score_call(session: "Session[Any]", queries: Any, documents: Any, params: Any) -> "NumbersCall[Scores]":
    from .scores import comparison, text_pairs  # few programs need it

    model = require(session, "score", None)
    if not isinstance(wanted := checked(params, width_of(session)), PoolingParams):
        raise RequestError("pooling_params: score takes one PoolingParams for all pairs, not a list.")
    pairs = text_pairs(queries, documents)
    compared = comparison(pairs, model, lambda: session.tokenizer, session.longest_pooled, wanted)
    return NumbersCall(compared.groups, compared.scores)


def decide_call(session: "Session[Any]", given: Any, questions: Any, receipt: Any) -> "NumbersCall[list[Decision]]":
    plans = decision_plans(session, given, questions, receipt=FLAG.checked("receipt", receipt, RequestError))
    prompts = (each for plan in plans for each in plan.prompts)

    def decided(results: Results) -> "list[Decision]":
        rest = iter(results)
        return [plan.decision(list(islice(rest, len(plan.params)))) for plan in plans]

    return NumbersCall([(prompts, [each for plan in plans for each in plan.params])], decided)


def decision_plans(
    session: "Session[Any]", given: Any, questions: Any, *, receipt: bool = False
) -> "list[DecisionPlan]":
    """Plan a decision with this model for each input."""
    from .decide import Decider, each_input  # few programs need it
    from .decisions import parsed_questions

    if session.pooled is not None:
        raise ConfigError(f"decide takes a model that answers, and {session.tree_config.model} gives numbers.")
    parsed, inputs = parsed_questions(questions), list(each_input(given))
    decider = Decider(session, receipt=receipt)
    return [decider.plan(each, parsed) for each in inputs]


def labelled_error(output: Any, label: str) -> str | None:
    """Return why a prompt has failed, with its label if it has one and was refused."""
    message: str | None = output.error_msg
    return f"{label}: {message}" if label and output.error_code == 400 else message


def _embedded(outputs: Results) -> list[PoolingRequestOutput[EmbeddingOutput]]:
    return [_as(output, lambda data: EmbeddingOutput(data.tolist())) for output in outputs]


def classified(outputs: Results, model: PooledModel) -> Classes:
    def of(data: Any) -> ClassificationOutput:
        labels = list(model.labels) if len(model.labels) == len(data) else []
        return ClassificationOutput(data.tolist(), labels[int(data.argmax())] if labels else None, labels)

    return [_as(output, of) for output in outputs]


def _as(output: PoolingRequestOutput[PoolingOutput], make: Callable[[Any], Any]) -> PoolingRequestOutput[Any]:
    """Return the same result in another form."""
    changed: PoolingRequestOutput[Any] = output
    if output.outputs is not None:
        changed.outputs = make(output.outputs.data)
    return changed


def _stacked(outputs: Sequence[PoolingRequestOutput[PoolingOutput]]) -> "numpy.ndarray":
    import numpy

    for number, output in enumerate(outputs):
        if output.outputs is None:
            raise RequestError(f"Prompt {number} failed: {output.error_msg}")
    rows = [output.outputs.data for output in outputs if output.outputs is not None]
    return numpy.stack(rows) if rows else numpy.zeros((0, 0), numpy.float32)
