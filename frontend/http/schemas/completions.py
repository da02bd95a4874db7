"""Bodies of /v1/completions: prompts in, their continuations out, whole or as a stream."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ....protocol.fields.rules import MOST
from ....protocol.parameters.sampling import MAX_SAMPLES
from .sampling import PromptLogprobs, Ranked, Sampling, TokenId, Usage


class CompletionRequest(Sampling, kw_only=True, forbid_unknown_fields=True):
    prompt: Annotated[
        str | list[str | TokenId | list[TokenId]],
        Meta(description="a text, a list of texts, token ids, or a list of such lists"),
    ]
    max_tokens: Annotated[int, Meta(ge=0, le=MOST, description="0 only with echo")] | None = None
    logprobs: Ranked | None = None
    echo: bool | None = None
    suffix: Annotated[str | None, Meta(description="refused: models can't fill gaps here")] = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_SAMPLES, description="must equal n")] | None = None
    add_special_tokens: bool | None = None


class CompletionLogprobs(msgspec.Struct, kw_only=True):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, kw_only=True):
    index: int
    text: str
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: CompletionLogprobs | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(msgspec.Struct, kw_only=True):
    """An answer, or a piece of a stream, whose usage comes last if the request asked for it."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType = UNSET
    object: Literal["text_completion"] = "text_completion"
    notice: str | UnsetType = UNSET  # if the model's processes died: how the answer goes on
    receipt: str | UnsetType = UNSET
