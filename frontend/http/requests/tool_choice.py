"""`tool_choice`: whether an answer must be a tool call, and how such an answer is parsed.

"auto" leaves it to the model, which writes calls in its family's format. "required" and a named function constrain the
answer to one call in JSON, whatever the family; the whole text is then the call.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....protocol.outputs import CompletionOutput, FunctionCall, ToolCall
from ....protocol.parameters.guided import GuidedDecodingParams
from ...parsing import AnswerReader, CallForm, CallMarks
from ...parsing.calls.json_call import BareJsonCall
from ...receipts.receipt import View
from ...requests.tool_schemas import DEFINITIONS, arguments_schema
from ..answers.errors import ApiError
from ..schemas.chat import AllowedTools

_ONE_JSON_CALL = CallMarks((CallForm("{", BareJsonCall, is_bare=True),))


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The tools for the template, and the required shape of the answer."""

    tools: Sequence[Mapping[str, Any]] | None
    shape: GuidedDecodingParams | None = None
    named: str | None = None  # the whole answer is this function's arguments
    is_required: bool = False

    @classmethod
    def of(cls, choice: Any, tools: Sequence[Mapping[str, Any]]) -> "ToolChoice":
        """`choice` is one of OpenAI's words, or a struct: the `name` of a function, or the allowed tools."""
        if isinstance(choice, AllowedTools):
            return cls.of(choice.mode, _allowed(choice, tools))
        if isinstance(choice, str) and choice == "none":
            return cls(None)
        if choice is None or choice == "auto":
            return cls(tools or None)
        if not tools:
            raise ApiError(400, "tool_choice asks for a call, and there are no tools.", param="tool_choice")
        if choice == "required":
            calls = [_call_schema(tool["function"]) for tool in tools]
            schema = calls[0] if len(calls) == 1 else {"anyOf": calls, **_definitions(calls)}
            return cls(tools, GuidedDecodingParams(json=schema), is_required=True)
        function = next((each["function"] for each in tools if each["function"]["name"] == choice.name), None)
        if function is None:
            raise ApiError(400, f"tool_choice names {choice.name!r}, which is not among tools.", param="tool_choice")
        shape = GuidedDecodingParams(json=arguments_schema(function))
        return cls(tools, shape, named=function["name"])

    def view(self, *, hides_thoughts: bool) -> View:
        return View(self.named, self.is_required, hides_thoughts)

    def call_parsers(self, samples: int, digits: str | None = None) -> "list[CallParser] | None":
        """One parser for each sample; None if answers are used unchanged. Calls' ids begin with `digits`, by default
        random ones."""
        if self.shape is None:
            return None
        digits = digits or secrets.token_hex(12)
        return [CallParser(self.named, f"call_{digits}{sample or ''}") for sample in range(samples)]


class CallParser:
    """Turns the text of one sample into a tool call, piece by piece."""

    def __init__(self, named: str | None, call_id: str) -> None:
        self._named = named
        self._call_id = call_id
        self._has_begun = False
        self._reader = AnswerReader(None, _ONE_JSON_CALL, {}, lambda index: self._call_id)

    def take(self, answer: CompletionOutput) -> None:
        if answer.tool_calls:  # a family that writes calls as bare JSON has parsed it already
            return
        if self._named is not None:
            self._take_arguments(answer)
            return
        parts = self._reader.feed(answer.text, is_last=answer.finish_reason is not None)
        answer.text, answer.tool_calls = parts.text, parts.calls or None
        if answer.finish_reason == "stop" and self._reader.has_whole_calls:
            answer.finish_reason = "tool_calls"

    def _take_arguments(self, answer: CompletionOutput) -> None:
        if answer.text:
            first = not self._has_begun
            function = FunctionCall(self._named if first else None, answer.text)
            answer.tool_calls = [ToolCall(self._call_id if first else None, function)]
            self._has_begun = True
        answer.text = ""


def _allowed(choice: AllowedTools, tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    names = {tool.function.name for tool in choice.tools}
    if unknown := sorted(names - {tool["function"]["name"] for tool in tools}):
        raise ApiError(400, f"tool_choice allows {unknown[0]!r}, which is not among tools.", param="tool_choice")
    return [tool for tool in tools if tool["function"]["name"] in names]


def _call_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a call. Definitions move to its top, since references in a function's schema point there."""
    arguments = dict(arguments_schema(function))
    lifted = {name: arguments.pop(name) for name in DEFINITIONS if name in arguments}
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "parameters": arguments},
        "required": ["name", "parameters"],
        "additionalProperties": False,
        **lifted,
    }


def _definitions(calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The definitions of all calls together; the first of several with the same name is used."""
    every: dict[str, Any] = {}
    for call in calls:
        for name in DEFINITIONS:
            for key, schema in call.pop(name, {}).items():
                every.setdefault(name, {}).setdefault(key, schema)
    return every
