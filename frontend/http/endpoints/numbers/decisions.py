"""/v1/decisions, as OpenAI has it: questions about a text, answered by the probabilities of labels instead of words."""

from typing import Any

from .....protocol.errors import RequestError
from ....pooling.calls import decision_plans
from ....pooling.decide import DecisionPlan
from ....pooling.decisions import Answer
from ...answers.errors import ApiError
from ...answers.reply import Reply
from ...endpoint import Call
from ...loaded_model import LoadedModel
from ...requests.conversation import as_messages
from ...requests.request_parts import conversation
from ...schemas.decisions import DecisionReply, DecisionRequest, DecisionUsage, WrittenDetails
from .results import numbers_of


async def decisions(call: Call, request: DecisionRequest) -> Reply:
    async with call.model(request.model) as model:
        plan = await call.done(model.threads.templates, _planned, request, model, takes_long=True)
        outputs = await numbers_of(call, model, zip(plan.prompts, plan.params, strict=True))
    decision = plan.decision(outputs)
    num_tokens, num_cached = decision.num_prompt_tokens, decision.num_cached_tokens
    return Reply.of(
        DecisionReply(
            id=call.active_request.id,
            model=request.model or model.name,
            answers=[_as_given(answer) for answer in decision.answers],
            usage=DecisionUsage(
                input_tokens=num_tokens,
                input_tokens_details=WrittenDetails(cached_tokens=num_cached),
                total_tokens=num_tokens,
            ),
        )
    )


def _planned(request: DecisionRequest, model: LoadedModel) -> DecisionPlan:
    if model.session.pooled is not None:
        raise ApiError(400, f"{model.name} gives numbers; questions need a model that writes text.", param="model")
    state: Any = request.input
    if not isinstance(state, str):
        state = as_messages(list(conversation(state)))
    try:
        [plan] = decision_plans(model.session, state, request.questions)
    except RequestError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ApiError(400, f"These questions can't be rendered: {type(error).__name__}.") from error
    return plan


def _as_given(answer: Answer) -> dict[str, Any]:
    """An answer in OpenAI's form, in which options of a choice have no label."""
    given = answer.to_dict()
    if answer.type == "choice":
        for each in given["probabilities"]:
            del each["label"]
    return given
