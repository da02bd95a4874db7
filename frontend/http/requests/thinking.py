"""Reads how much a model shall think before its answer, in each form that clients of other servers use."""

from typing import Any, NamedTuple

from ..answers.errors import ApiError
from ..schemas.chat import ChatRequest


class Thinking(NamedTuple):
    template_options: dict[str, Any]  # that were given; a chat template may read them
    max_tokens: int | None
    is_shown: bool


def thinking_of(request: ChatRequest) -> Thinking:
    """Combine all fields; two that contradict one another are refused."""
    reasoning, thinking = request.reasoning, request.thinking
    is_enabled = {
        "enable_thinking": request.enable_thinking,
        "think": request.think,
        "thinking": None if thinking is None else {"enabled": True, "disabled": False}.get(thinking.type or ""),
        "reasoning": None if reasoning is None else False if reasoning.effort == "none" else reasoning.enabled,
        "reasoning_effort": False if request.reasoning_effort == "none" else None,
    }
    effort = {"reasoning_effort": request.reasoning_effort, "reasoning": reasoning and reasoning.effort}
    budget = {"thinking": thinking and thinking.budget_tokens, "reasoning": reasoning and reasoning.max_tokens}
    options = {
        "enable_thinking": _only(is_enabled),
        "reasoning_effort": _only(effort),
        "verbosity": request.verbosity,
    }
    is_hidden = request.include_reasoning is False or (reasoning is not None and reasoning.exclude is True)
    given = {name: value for name, value in options.items() if value is not None}
    return Thinking(given, _only(budget), not is_hidden)


def _only(said: dict[str, Any]) -> Any:
    """The value that they agree on; None if none of them has one."""
    given = {name: value for name, value in said.items() if value is not None}
    if any(value != next(iter(given.values())) for value in given.values()):
        raise ApiError(400, f"{' and '.join(given)} contradict one another; give one of them.", param=next(iter(given)))
    return next(iter(given.values()), None)
