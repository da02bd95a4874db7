"""The calls of `LLM` and `AsyncLLM` that give numbers: `embed`, `encode`, `classify`, `score`.

They run as `generate` does.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ConfigError, RequestError
from ...protocol.fields.rules import FLAG
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.pooling.outputs import ClassificationOutput, EmbeddingOutput, PoolingOutput, PoolingRequestOutput
from ..call_arguments import named_arguments
from ..models.pooled_model import PooledModel, Task
from ..session.threads import in_own_thread

if TYPE_CHECKING:
    import numpy

    from ..session.session import Session
    from .decide import DecisionPlan
    from .decisions import Decision
    from .scores import Comparison, Scores

Results = list[PoolingRequestOutput[PoolingOutput]]


class PoolingCalls:
    """Those of `LLM`."""

    _session: "Session[Any]"
    generate: Callable[[Any, Any, bool], Any]

    @named_arguments
    def embed(
        self, prompts: Any, pooling_params: PoolingParams | None = None, use_tqdm: bool = True, as_numpy: bool = False
    ) -> "list[PoolingRequestOutput[EmbeddingOutput]] | numpy.ndarray":
        """Embed texts or lists of token ids: `.outputs.embedding` of each is its vector.

        With `as_numpy` the vectors come as one float32 array, [prompts, numbers]; a prompt that fails then raises.
        """
        require(self._session, "embed", "embed")
        return embedded(self.generate(prompts, checked_for_one(pooling_params), use_tqdm), as_numpy)

    @named_arguments
    def encode(self, prompts: Any, pooling_params: PoolingParams | None = None, use_tqdm: bool = True) -> Results:
        """Give the model's numbers for each prompt as an array, `.outputs.data`; with `by_token` a row a token.

        A model that writes text gives the log-probabilities of the next tokens in `logprob_token_ids`.
        """
        params = checked(pooling_params)
        if params.logprob_token_ids is None:
            require(self._session, "encode", None)
        found: Results = self.generate(prompts, params, use_tqdm)
        return found

    @named_arguments
    def classify(
        self, prompts: Any, pooling_params: PoolingParams | None = None, use_tqdm: bool = True
    ) -> list[PoolingRequestOutput[ClassificationOutput]]:
        """Classify prompts: `.outputs.probs` has each class's probability, `.label` the likeliest one's name."""
        model = require(self._session, "classify", "classify")
        return classified(self.generate(prompts, checked(pooling_params), use_tqdm), model)

    @named_arguments
    def score(
        self, queries: Any, documents: Any, pooling_params: PoolingParams | None = None, use_tqdm: bool = True
    ) -> "Scores":
        """Score documents for one query, or each for its own: `.outputs.score`, the higher the better a text fits.

        A reranker reads both texts together; with any other model it is the cosine of their vectors.
        """
        compared = compare(self._session, queries, documents, checked(pooling_params))
        results: Results = []
        for prompts, params in compared.groups:
            results += self.generate(prompts, params, use_tqdm)
        return compared.scores(results)

    @named_arguments
    def decide(self, input: Any, questions: Any, use_tqdm: bool = True) -> "list[Decision]":
        """Answer questions about a text or a conversation by the probabilities of labels; no text is written.

        Questions are those of OpenAI's /v1/decisions: `predicate`, `choice` and `score`. One result for each input,
        whose `.answers` have `.probability`, or `.choice` or `.score` with `.probabilities`, and `.label_mass`.
        """
        plans = decision_plans(self._session, input, questions)
        return decided(plans, self.generate(*asked(plans), use_tqdm))


class AsyncPoolingCalls:
    """Those of `AsyncLLM`."""

    ready: Callable[[], Any]
    generate: Callable[[Any, Any], Any]

    @property
    def _session(self) -> "Session[Any]":
        raise NotImplementedError  # it is `AsyncLLM`'s

    @named_arguments
    async def embed(
        self, prompts: Any, pooling_params: PoolingParams | None = None, as_numpy: bool = False
    ) -> "list[PoolingRequestOutput[EmbeddingOutput]] | numpy.ndarray":
        """Embed texts or lists of token ids, as `LLM.embed` does."""
        await self.ready()
        require(self._session, "embed", "embed")
        return embedded(await self.generate(prompts, checked_for_one(pooling_params)), as_numpy)

    @named_arguments
    async def encode(self, prompts: Any, pooling_params: PoolingParams | None = None) -> Results:
        """Give the model's numbers for each prompt, as `LLM.encode` does."""
        await self.ready()
        params = checked(pooling_params)
        if params.logprob_token_ids is None:
            require(self._session, "encode", None)
        found: Results = await self.generate(prompts, params)
        return found

    @named_arguments
    async def classify(
        self, prompts: Any, pooling_params: PoolingParams | None = None
    ) -> list[PoolingRequestOutput[ClassificationOutput]]:
        """Classify prompts, as `LLM.classify` does."""
        await self.ready()
        model = require(self._session, "classify", "classify")
        return classified(await self.generate(prompts, checked(pooling_params)), model)

    @named_arguments
    async def score(self, queries: Any, documents: Any, pooling_params: PoolingParams | None = None) -> "Scores":
        """Score documents for one query, or each for its own, as `LLM.score` does."""
        await self.ready()
        compared = compare(self._session, queries, documents, checked(pooling_params))
        results: Results = []
        for prompts, params in compared.groups:
            results += await self.generate(prompts, params)
        return compared.scores(results)

    @named_arguments
    async def decide(self, input: Any, questions: Any) -> "list[Decision]":
        """Answer questions by the probabilities of labels, as `LLM.decide` does."""
        await self.ready()
        plans = await in_own_thread(lambda: decision_plans(self._session, input, questions))
        return decided(plans, await self.generate(*asked(plans)))


def decision_plans(session: "Session[Any]", given: Any, questions: Any) -> "list[DecisionPlan]":
    """What `decide` computes with this model, for each input."""
    from .decide import Decider, each_input  # few programs need it
    from .decisions import parsed_questions

    if session.pooled is not None:
        raise ConfigError(f"decide takes a model that answers, and {session.tree_config.model} gives numbers.")
    parsed, inputs = parsed_questions(questions), list(each_input(given))
    decider = Decider(session)
    return [decider.plan(each, parsed) for each in inputs]


def asked(plans: "list[DecisionPlan]") -> tuple[list[list[int]], list[PoolingParams]]:
    """All plans' prompts, and the parameters of each."""
    return [each for plan in plans for each in plan.prompts], [each for plan in plans for each in plan.params]


def decided(plans: "list[DecisionPlan]", results: Sequence[Any]) -> "list[Decision]":
    """The results of all plans' prompts, as a decision for each."""
    rest = iter(results)
    return [plan.decision(list(islice(rest, len(plan.params)))) for plan in plans]


def compare(session: "Session[Any]", queries: Any, documents: Any, params: PoolingParams) -> "Comparison":
    """What `score` computes with this model."""
    from .scores import comparison, text_pairs  # few programs need it

    model = require(session, "score", None)
    return comparison(text_pairs(queries, documents), model, lambda: session.tokenizer, session.longest_pooled, params)


def require(session: "Session[Any]", call: str, task: Task | None) -> PooledModel:
    """What the model gives; raises if that isn't what the call is for."""
    name = session.tree_config.model
    if (model := session.pooled) is None:
        raise ConfigError(
            f"{call} takes a model that gives numbers, and {name} writes text. Use an embedding or reranking model, or "
            "open this one with runner='pooling'."
        )
    if task is not None and model.task != task:
        given = "classes" if model.task == "classify" else "vectors"
        raise ConfigError(f"{call} doesn't suit {name}, which gives {given}; `encode` gives them as they are.")
    return model


def checked_for_one(params: Any) -> PoolingParams:
    """Parameters of a call that gives one vector for each text."""
    if (found := checked(params)).by_token:
        raise RequestError("by_token: embed gives one vector for each text; use encode for one of each token.")
    return found


def checked(params: Any) -> PoolingParams:
    if params is not None and not isinstance(params, PoolingParams):
        raise RequestError(f"pooling_params must be PoolingParams, not {type(params).__name__}.")
    return params or PoolingParams()


def embedded(outputs: Results, as_numpy: bool) -> "list[PoolingRequestOutput[EmbeddingOutput]] | numpy.ndarray":
    if FLAG.checked("as_numpy", as_numpy, RequestError):
        return _stacked(outputs)
    return [_as(output, lambda data: EmbeddingOutput(data.tolist())) for output in outputs]


def classified(outputs: Results, model: PooledModel) -> list[PoolingRequestOutput[ClassificationOutput]]:
    def of(data: Any) -> ClassificationOutput:
        has_names = len(model.labels) == len(data)
        return ClassificationOutput(data.tolist(), model.labels[int(data.argmax())] if has_names else None)

    return [_as(output, of) for output in outputs]


def _as(output: PoolingRequestOutput[PoolingOutput], make: Callable[[Any], Any]) -> PoolingRequestOutput[Any]:
    """The same result in another form."""
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
