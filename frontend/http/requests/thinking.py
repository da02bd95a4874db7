"""Reads how much a model should think before its answer, in all forms that clients of other servers use.

Chats, responses and the lines of batches are read alike. Options that a request gives to the chat template by name have
precedence.
"""

from typing import Any, NamedTuple

from ..answers.errors import ApiError
from ..schemas.chat import ChatRequest
from ..schemas.responses import ResponsesRequest
from .conversation import template_options


class Thinking(NamedTuple):
    template_options: dict[str, Any]  # all given options; a chat template may read them
    max_tokens: int | None


def thinking_of(request: ChatRequest | ResponsesRequest) -> Thinking:
    """Combine all fields; contradictory ones are refused."""
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
    given = {name: value for name, value in options.items() if value is not None}
    return Thinking({**given, **template_options(request.chat_template_kwargs)}, _only(budget))


def _only(said: dict[str, Any]) -> Any:
    """The value that they agree on; None if none is set."""
    given = {name: value for name, value in said.items() if value is not None}
    if any(value != next(iter(given.values())) for value in given.values()):
        raise ApiError(400, f"{' and '.join(given)} contradict one another; give one of them.", param=next(iter(given)))
    return next(iter(given.values()), None)
