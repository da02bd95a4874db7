"""Equivalent forms of a conversation, for templates that can't take it as given.

OpenAI's format lets a tool have no description, a message no content, an empty list of calls, or a thought, a text and
calls together. A template may fail on any of these. The forms are tried in turn, each including the previous changes,
and only after the template has failed: a conversation that renders is never changed.
"""

from collections.abc import Callable, Iterator
from typing import Any

Variables = dict[str, Any]


def other_forms(variables: Variables) -> Iterator[Variables]:
    for change in (_with_descriptions, _without_empty_calls, _with_contents, _with_texts_in_thoughts):
        changed = change(variables)
        if changed != variables:
            variables = changed
            yield variables


def _with_descriptions(variables: Variables) -> Variables:
    tools = variables["tools"]
    if not isinstance(tools, list):
        return variables
    return {**variables, "tools": [_described(tool) for tool in tools]}


def _described(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or function.get("description") is not None:
        return tool
    return {**tool, "function": {**function, "description": ""}}


def _without_empty_calls(variables: Variables) -> Variables:
    def change(message: dict[str, Any]) -> dict[str, Any]:
        if message.get("tool_calls", True):
            return message
        return {name: value for name, value in message.items() if name != "tool_calls"}

    return _with_messages(variables, change)


def _with_contents(variables: Variables) -> Variables:
    return _with_messages(variables, lambda message: {"content": "", **message})


def _with_texts_in_thoughts(variables: Variables) -> Variables:
    """Text next to calls becomes the end of the thought that led to them."""

    def change(message: dict[str, Any]) -> dict[str, Any]:
        thought, text = message.get("reasoning_content"), message.get("content")
        if not (message.get("tool_calls") and thought and text and isinstance(text, str)):
            return message
        both = f"{thought}\n\n{text}"
        return {**message, "content": "", "reasoning_content": both, "thinking": both}

    return _with_messages(variables, change)


def _with_messages(variables: Variables, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Variables:
    return {**variables, "messages": [change(message) for message in variables["messages"]]}
