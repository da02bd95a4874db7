"""Bodies of /v1/decisions, in OpenAI's form: questions about a text or a conversation, answered with probabilities."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .numbers import Receipt
from .responses import InputDetails, InputItem, OutputDetails, ResponsesUsage
from .sampling import FreeForm


class DecisionRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: Annotated[str | None, Meta(description="a name from /v1/models")] = None
    input: Annotated[
        str | Annotated[list[InputItem], Meta(min_length=1)], Meta(description="what the questions are about")
    ]
    questions: Annotated[
        list[FreeForm],
        Meta(description="1 to 400, each a `predicate`, a `choice` of `choices` or a `score` of `levels`"),
    ]
    receipt: Receipt = None
    user: Annotated[str | None, Meta(description="without effect")] = None
    safety_identifier: Annotated[str | None, Meta(description="without effect")] = None
    prompt_cache_key: Annotated[str | None, Meta(description="without effect")] = None
    prompt_cache_options: Annotated[FreeForm | None, Meta(description="without effect")] = None


class WrittenDetails(InputDetails, kw_only=True):
    cache_write_tokens: int = 0


class DecisionUsage(ResponsesUsage, kw_only=True):
    """Tokens of all questions' prompts together; those of the input were computed for one of them."""

    input_tokens_details: WrittenDetails
    output_tokens: int = 0
    output_tokens_details: OutputDetails = msgspec.field(default_factory=OutputDetails)


class DecisionReply(msgspec.Struct, kw_only=True):
    """The answers in the order of the questions, each with its `label_mass`."""

    id: str
    model: str
    answers: list[FreeForm]
    usage: DecisionUsage
    receipt: str | UnsetType = UNSET
