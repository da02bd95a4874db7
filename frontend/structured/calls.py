"""Grammars of tool calls in a model family's format: the name of a tool, and arguments that fit its schema.

A call is guided from its opening mark on. A mark that is one token is recognized by that token; one of several tokens,
by its usual tokenizations. A schema that can't be enforced, or not cheaply, allows any object.
"""

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ...protocol.errors import RequestError
from ...protocol.parameters.guided import CallGuide, Grammar
from ..parsing.calls.tagged_call import value_types
from ..parsing.marks import CallBody, CallForm, CallMarks, HeadedBody, JsonBody, Marks, Pieces, Tags
from ..parsing.thought_tokens import Encode, spellings
from .schemas import MOST_WORK, plain_schema
from .shape import MOST_BYTES, check_levels, spaced
from .tags import lark_text

_log = logging.getLogger(__name__)

Functions = Mapping[str, Mapping[str, Any]]  # the description of each tool, by name
ArgumentsOf = Callable[[Mapping[str, Any]], Any]

_ANY_OBJECT = {"type": "object"}
_MOST_KEPT = 64
_SPACE = "SPACE: /[ \\t\\r\\n]{0,16}/"


class CallGuides:
    """Makes the guides for calls of one model, and caches those of the most recently used tools."""

    def __init__(
        self,
        calls: CallMarks | None,
        arguments_of: ArgumentsOf,
        encode: Encode,
        is_special: Callable[[int], bool],
        *,
        is_compact: bool = False,
    ) -> None:
        self._forms = [form for form in calls.forms if form.bodies] if calls else []
        self._wrapper = calls.wrapper if calls else Marks("", "")
        self._arguments_of = arguments_of
        self._tokens = _Tokens(encode, is_special)
        self._is_compact = is_compact
        self._kept: OrderedDict[str, list[CallGuide]] = OrderedDict()

    def of(self, functions: Functions) -> list[CallGuide]:
        """A guide for each form of calls that can be recognized in text; none if the schemas are too large."""
        if not self._forms or not functions:
            return []
        try:
            text = json.dumps(functions, ensure_ascii=False)
            num_bytes = len(text.encode())
        except (TypeError, ValueError, RecursionError):  # for values that no schema has
            return []
        if num_bytes > MOST_BYTES:
            _log.warning("Calls are not held to their tools' schemas, which have %s bytes.", f"{num_bytes:,}")
            return []
        if (guides := self._kept.get(text)) is None:
            guides = self._kept[text] = self._guides(json.loads(text))
        self._kept.move_to_end(text)
        while len(self._kept) > _MOST_KEPT or sum(map(len, self._kept)) > 2 * MOST_BYTES:
            self._kept.popitem(last=False)
        return guides

    def _guides(self, functions: Functions) -> list[CallGuide]:
        most_work, faults = MOST_WORK // len(functions), list[str]()
        tools = {name: self._arguments(function, most_work, faults) for name, function in functions.items()}
        if faults:
            _log.warning("Calls of %s tools may have any arguments. Of the first: %s", len(faults), faults[0][:300])
        guides = [_Writer(form, self._wrapper, tools, self._tokens).guide() for form in self._forms]
        return [guide for guide in guides if guide.openings and len(guide.grammar.text) <= MOST_BYTES]

    def _arguments(self, function: Mapping[str, Any], most_work: int, faults: list[str]) -> "_Arguments":
        anything = _Arguments(_ANY_OBJECT, self._is_compact)
        if function.get("strict") is False or not isinstance(function.get("parameters") or {}, Mapping):
            return anything
        schema = {**self._arguments_of(function), "type": "object"}
        try:
            check_levels("parameters", schema)
            return _Arguments(_with_null(schema), self._is_compact, most_work)
        except RequestError as error:
            faults.append(f"{function['name']!r}: {error}")
            return anything


class _Arguments:
    """The schema of a tool's arguments, as given and as a grammar."""

    def __init__(self, schema: Mapping[str, Any], is_compact: bool, most_work: int = MOST_WORK) -> None:
        self.schema = schema
        self._is_compact = is_compact
        self._most_work = most_work
        self.rule = self.rule_of(schema)

    def rule_of(self, schema: Mapping[str, Any]) -> str:
        """A rule's text for a value; raises `RequestError` if it can't be expressed, or not cheaply."""
        written = spaced(plain_schema(schema, self._most_work), self._is_compact)
        return f": %json {json.dumps(written, ensure_ascii=False)}"


class _Tokens(NamedTuple):
    encode: Encode
    is_special: Callable[[int], bool]

    def mark(self, mark: str) -> str:
        """The mark as one token, if the tokenizer has one and would not write it as text."""
        ids = self.encode(mark) if mark else []
        return f"<[{ids[0]}]>" if len(ids) == 1 and self.is_special(ids[0]) else lark_text(mark)

    def openings(self, mark: str) -> list[list[int]]:
        ids = self.encode(mark)
        return [ids] if len(ids) == 1 else spellings((mark,), self.encode)


def _with_null(schema: Any) -> Any:
    """Handle `nullable`, which schemas made from Python functions use for values that may be null."""
    if isinstance(schema, list):
        return [_with_null(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: _with_null(value) for key, value in schema.items()}
    if found.get("nullable") is True and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
    return found


class _Writer:
    """Writes the grammar of one form of calls in Lark."""

    def __init__(self, form: CallForm, wrapper: Marks, tools: Mapping[str, _Arguments], tokens: _Tokens) -> None:
        self._form = form
        self._wrapper = wrapper
        self._tools = tools
        self._tokens = tokens
        self._mark = tokens.mark
        self._rules: dict[str, str] = {}  # by their content

    def guide(self) -> CallGuide:
        form, opening, closing = self._form, self._form.begins or self._form.opening, self._form.closing
        inside = self._one_of(map(self._written, form.bodies))
        if self._wrapper.opening and len(self._tokens.encode(opening)) != 1:  # one or more calls in the wrapper
            inside = f"({self._mark(opening)} {inside} SPACE {self._mark(closing or '')} SPACE)+"
            opening, closing = self._wrapper.opening, self._wrapper.closing
        ids = self._tokens.encode(closing) if closing else []
        end = "" if not closing else "SPACE" if len(ids) == 1 else f"SPACE {self._mark(closing)}"
        rules = "\n".join(f"{name}{text}" for text, name in self._rules.items())
        text = f"%llguidance {{}}\nstart: SPACE {inside} {end}\n{_SPACE}\n{rules}\n"
        return CallGuide(self._tokens.openings(opening), ids if len(ids) == 1 else [], Grammar("call", text))

    def _written(self, body: CallBody) -> str:
        match body:
            case JsonBody():
                call = self._one_of(map(self._json, self._tools))
                return f'"[" SPACE {call} (SPACE "," SPACE {call})* SPACE "]"' if body.is_list else call
            case HeadedBody():
                return self._one_of(self._headed(body, name) for name in self._tools)
        return self._one_of(self._tagged(body, name) for name in self._tools)

    def _headed(self, body: HeadedBody, name: str) -> str:
        before, between, behind = map(self._pieces, (body.before, body.between, body.behind))
        return f"{before} {lark_text(name)} {between} SPACE {self._arguments(name)} {behind}"

    def _json(self, name: str) -> str:
        quoted = lark_text(json.dumps(name, ensure_ascii=False))
        head = f'"{{" SPACE "\\"name\\"" SPACE ":" SPACE {quoted} SPACE "," SPACE "\\"arguments\\"" SPACE ":" SPACE'
        return f'{head} {self._arguments(name)} SPACE "}}"'

    def _arguments(self, name: str) -> str:
        return self._rule("arguments", self._tools[name].rule)

    # --- arguments between tags -----------------------------------------------------------------------------------

    def _tagged(self, tags: Tags, name: str) -> str:
        tool = self._tools[name]
        schema = tool.schema
        properties, required = schema.get("properties"), schema.get("required")
        named = properties if isinstance(properties, Mapping) else {}
        needed = required if isinstance(required, list) else []
        arguments = [
            f"({self._argument(tags, lark_text(key), self._value(tags, tool, value))} SPACE)"
            + ("" if key in needed else "?")
            for key, value in named.items()
        ]
        if schema is _ANY_OBJECT or schema.get("additionalProperties", not named) is not False:
            key = self._rule("KEY", ": /[\\w.:-]{1,64}/")
            arguments.append(f"({self._argument(tags, key, self._text(tags))} SPACE)*")
        name_end = lark_text(tags.name_end) if tags.name_end.strip() else ""
        return f"{lark_text(name)} {name_end} SPACE {' '.join(arguments)}"

    def _argument(self, tags: Tags, key: str, value: str) -> str:
        opening = f"SPACE {self._mark(tags.value_opening)}" if tags.value_opening else ""
        return f"{self._mark(tags.key_opening)} {key} {self._mark(tags.key_closing)} {opening} {value}"

    def _value(self, tags: Tags, tool: _Arguments, schema: Any) -> str:
        choices = schema.get("enum") if isinstance(schema, Mapping) else None
        if isinstance(choices, list) and choices and all(isinstance(each, str) and each for each in choices):
            chosen = self._one_of(map(lark_text, choices))
            return f"SPACE {chosen} SPACE {self._mark(tags.value_closing)}"
        if not (types := value_types(schema)) or "string" in types:
            return self._text(tags)
        definitions = {key: tool.schema[key] for key in ("$defs", "definitions") if key in tool.schema}
        try:
            value = self._rule("value", tool.rule_of({**schema, **definitions}))
        except RequestError:  # it refers to another part of the whole schema
            return self._text(tags)
        return f"SPACE {value} SPACE {self._mark(tags.value_closing)}"

    def _text(self, tags: Tags) -> str:
        """Any text up to the closing mark, without other marks that would also end it."""
        closing = self._mark(tags.value_closing)
        others = (tags.key_opening, self._form.closing or "", self._wrapper.closing, self._wrapper.opening)
        inside = "|".join(_escaped(mark) for mark in dict.fromkeys(others) if mark)
        free = self._rule("FREE", f": /(?s:.*)/ & ~/(?s:.*)({inside})(?s:.*)/")
        if closing.startswith("<["):
            return f"{free} {closing}"
        return self._rule("text", f"[lazy]: {free} {closing}")

    # --- parts ----------------------------------------------------------------------------------------------------

    def _one_of(self, several: Iterable[str]) -> str:
        return self._rule("any", ": " + " | ".join(several))

    def _rule(self, kind: str, text: str) -> str:
        """The name of a rule with this content; rules in capitals are terminals."""
        return self._rules.setdefault(text, f"{kind}_{len(self._rules)}")

    def _pieces(self, pieces: Pieces) -> str:
        return " ".join(self._mark(each) if isinstance(each, str) else f"/{each.pattern}/" for each in pieces)


def _escaped(mark: str) -> str:
    return re.escape(mark).replace("\\ ", " ").replace("/", "\\/")
