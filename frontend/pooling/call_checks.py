"""Checks of the calls that give numbers: what the model gives, and their parameters."""

from typing import TYPE_CHECKING, Any

from ...protocol.errors import ConfigError, RequestError
from ...protocol.parameters.pooling import PoolingParams
from ..models.pooled_model import GIVEN, PooledModel, Task

if TYPE_CHECKING:
    from ..session.session import Session

Checked = PoolingParams | list[PoolingParams]  # for all prompts, or of each


def require(session: "Session[Any]", call: str, task: Task | None) -> PooledModel:
    """Return what the model gives; raise if that isn't what the call is for."""
    name = session.tree_config.model
    if (model := session.pooled) is None:
        raise ConfigError(
            f"{call} takes a model that gives numbers, and {name} writes text. Use an embedding or reranking model, or "
            "open this one with runner='pooling'."
        )
    if task is not None and model.task != task:
        raise ConfigError(
            f"{call} doesn't suit {name}, which gives {GIVEN[model.task]}; `encode` gives them as they are."
        )
    return model


def checked(params: Any, width: int = 0) -> Checked:
    """Return parameters for all prompts, or a list with those of each; raise if no prompt could have them.

    `width` numbers are in a vector; 0: not known."""
    found = [_checked(each) for each in params] if isinstance(params, list | tuple) else _checked(params)
    for each in listed(found):
        if each.dimensions is not None and each.dimensions > width > 0:
            raise RequestError(too_many_dimensions(each.dimensions, width))
    return found


def too_many_dimensions(wanted: int, width: int) -> str:
    return f"dimensions={wanted:,}, and the model's vectors have {width:,} numbers."


def listed(params: Checked) -> list[PoolingParams]:
    return params if isinstance(params, list) else [params]


def _checked(params: Any) -> PoolingParams:
    if params is not None and not isinstance(params, PoolingParams):
        raise RequestError(f"pooling_params must be PoolingParams, not {type(params).__name__}.")
    return params or PoolingParams()


def checked_for_one(call: str, model: PooledModel, params: Any, width: int = 0) -> Checked:
    """Check the parameters of a call that gives one row of numbers for each text."""
    found = checked(params, width)
    by_token = any(each.by_token for each in listed(found))
    if by_token or model.form.by_token:
        cause = "by_token=True wants" if by_token else "this model gives"
        raise RequestError(
            f"{call} gives one result for each text, and {cause} one for each token. Use encode, or /pooling over HTTP."
        )
    return found


def width_of(session: "Session[Any]") -> int:
    """How many numbers a vector has; 0 if that isn't known."""
    return 0 if session.plan is None or session.pooled is None else session.plan.vector_width


def refuse_pairs(prompts: Any) -> None:
    """Refuse pairs of texts, which a classifier doesn't take; score does."""
    for each in prompts if isinstance(prompts, list) else ():
        if isinstance(each, list | tuple) and len(each) == 2 and all(isinstance(text, str) for text in each):
            raise RequestError(
                "classify takes one text for each result, and classes of two texts (as of NLI) aren't supported. A "
                "reranker's one number for a pair comes from score(query, document)."
            )
