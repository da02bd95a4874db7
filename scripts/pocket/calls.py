"""Tool calls in the Hermes form, and telling what a tool gave back. Half of the tools are invented."""

from collections.abc import Mapping
from typing import Any

from .example import Draw, Example, Message, asked, call_text, compact_json
from .tables import CITIES, ITEMS, NAMES
from .tools import KNOWN, Tool, invented, invented_key, schema
from .values import SKIES, ZH_SKIES, shown, value_of
from .wording import loosened

_TEXTS = (
    "hello", "good night", "see you soon", "call me", "I am late", "thank you", "happy birthday", "come home",
)  # fmt: skip
# With the others offered no other kind of question is answered otherwise; products are refused without this one.
_IDLE = tuple(tool for tool in KNOWN if tool.name != "multiply")


def tool_call(draw: Draw) -> Example:
    question, arguments, key, tool, _ = _request(draw)
    answer = call_text(tool.name, arguments)
    return asked("tool calls", key, question, answer, tools=_offered(draw, tool), judged="call")


def tool_result(draw: Draw) -> Example:
    question, arguments, key, tool, chinese = _request(draw)
    result = {name: _result_value(draw, name, arguments, chinese) for name in tool.result}
    call = {"type": "function", "function": {"name": tool.name, "arguments": arguments}}
    messages: tuple[Message, ...] = (
        {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": compact_json(result)},
    )
    answer = tool.told[chinese].format(**{**arguments, **result})
    return Example("tool results", key, messages, answer, tools=_offered(draw, tool))


def idle_tools(draw: Draw) -> tuple[dict[str, Any], ...]:
    """Tools that are offered though nothing asks for them."""
    offered = [invented(draw) if draw.chance(0.6) else draw.one(_IDLE) for _ in range(draw.number(1, 3))]
    return tuple(schema(tool) for tool in {tool.name: tool for tool in offered}.values())


def _request(draw: Draw) -> tuple[str, dict[str, Any], str, Tool, bool]:
    def make() -> tuple[Tool, str, dict[str, Any]]:
        tool = draw.one(KNOWN)
        phrase = draw.one(tool.requests)
        return tool, phrase, _arguments(draw, tool, not phrase.isascii())

    if draw.chance(0.5):
        (tool, phrase, arguments), key = draw.until_admitted(make, lambda made: f"{made[0].name} {made[2]}")
    else:
        tool = invented(draw)
        key, phrase = invented_key(tool.name), draw.one(tool.requests)
        arguments = _arguments(draw, tool, not phrase.isascii())
    said = {name: shown(value) for name, value in arguments.items()}
    return loosened(draw, phrase).format(**said), arguments, key, tool, not phrase.isascii()


def _arguments(draw: Draw, tool: Tool, chinese: bool) -> dict[str, Any]:
    return {name: _argument(draw, name, kind, chinese) for name, kind in tool.parameters.items()}


def _argument(draw: Draw, name: str, kind: str, chinese: bool) -> Any:
    if name in ("a", "b"):
        return draw.number(2, 99)
    if name == "text":
        return draw.one(_TEXTS) if draw.chance(0.5) else " ".join(draw.some(ITEMS, 2))
    if name == "artist":
        return draw.one(NAMES) + " " + draw.one(CITIES)
    return value_of(draw, name, kind, chinese)


def _result_value(draw: Draw, name: str, arguments: Mapping[str, Any], chinese: bool) -> Any:
    if name == "minutes":
        return arguments["minutes"]
    if name == "sent_to":
        return arguments["to"]
    if name == "sky":
        return draw.one(ZH_SKIES if chinese else SKIES)
    if name == "product":
        return arguments["a"] * arguments["b"]
    if name in ("song", "place", "name", "title", "status", "answer"):
        return value_of(draw, name, "string", chinese)
    return draw.number(10, 59) if draw.chance(0.7) else draw.number(60, 9999)


def _offered(draw: Draw, tool: Tool) -> tuple[dict[str, Any], ...]:
    """The tool among up to two others."""
    offered = [tool]
    for _ in range(draw.number(0, 2)):
        other = draw.one(KNOWN) if draw.chance(0.5) else invented(draw)
        if other.name not in (one.name for one in offered):
            offered.append(other)
    draw.random.shuffle(offered)
    return tuple(map(schema, offered))
