"""/v1/decisions, as OpenAI has it: questions about a text, answered by the probabilities of labels instead of words."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from .....protocol.errors import RequestError
from .....protocol.parameters.pooling import PoolingParams
from ....pooling.calls import decision_plans
from ....pooling.decide import DecisionPlan
from ....pooling.decisions import Answer
from ....receipts.numbers import NumbersView
from ....session.session import Session
from ...answers.errors import ApiError
from ...answers.long_json import LongJson
from ...requests.conversation import as_messages
from ...requests.request_parts import conversation
from ...schemas.decisions import DecisionReply, DecisionRequest, DecisionUsage, WrittenDetails
from .form import NumberForm, ReplyNames
from .results import Results


@dataclass(slots=True)
class DecisionsForm(NumberForm[DecisionRequest]):
    plan: DecisionPlan = field(init=False)  # once its prompts are made

    pool: ClassVar[Literal["texts", "templates"]] = "templates"

    @property
    def num_texts(self) -> None:
        return None

    @property
    def takes_long(self) -> bool:
        return True

    def label(self, number: int) -> str:
        return ""  # all prompts are of one input

    def prompts(self, session: Session[Any], name: str) -> Iterable[tuple[Any, PoolingParams]]:
        if session.pooled is not None:
            raise ApiError(400, f"{name} gives numbers; questions need a model that writes text.", param="model")
        state: Any = self.body.input
        if not isinstance(state, str):
            state = as_messages(list(conversation(state)))
        try:
            [self.plan] = decision_plans(session, state, self.body.questions, receipt=self.body.receipt is True)
        except RequestError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ApiError(400, f"These questions can't be rendered: {type(error).__name__}.") from error
        return zip(self.plan.prompts, self.plan.params, strict=True)

    def view(self) -> NumbersView:
        return self.plan.view()

    def reply(self, outputs: Results, names: ReplyNames, json: LongJson) -> DecisionReply:
        decision = self.plan.decision(outputs)
        num_tokens, num_cached = decision.num_prompt_tokens, decision.num_cached_tokens
        return DecisionReply(
            id=names.id,
            model=self.body.model or names.model,
            answers=[as_given(answer) for answer in decision.answers],
            usage=DecisionUsage(
                input_tokens=num_tokens,
                input_tokens_details=WrittenDetails(cached_tokens=num_cached),
                total_tokens=num_tokens,
            ),
        )


def as_given(answer: Answer) -> dict[str, Any]:
    """An answer in OpenAI's form, in which options of a choice have no label."""
    given = answer.to_dict()
    if answer.type == "choice":
        for each in given["probabilities"]:
            del each["label"]
    return given
