"""Tool calls in the Hermes form, and telling what a tool gave back. Half of the tools are invented."""

from collections.abc import Mapping
from typing import Any

from ..example import Draw, Example, Message, call_text, compact_json, one_turn
from ..grammar import framed, mistyped
from ..tables.lists import CITIES, ITEMS, NAMES, ZH_CITIES, ZH_NAMES
from ..tables.tools import KNOWN, Tool, core_words, invented, invented_key, schema, service
from ..tables.values import SKIES, ZH_SKIES, shown, slot_value, value_of
from ..tables.vocabulary import chinese_word
from ..wording import loosened

_TEXTS = (
    "hello", "good night", "see you soon", "call me", "I am late", "thank you", "happy birthday", "come home",
)  # fmt: skip
_OTHER_KEYS = {
    "sky": ("sky", "condition", "weather", "description", "conditions"), "sent_to": ("sent_to", "to", "recipient"),
    "product": ("product", "result"), "song": ("song", "track"), "hour": ("hour", "hours"),
}  # fmt: skip
_STATES = ("ok", "done", "sent", "failed", "open", "closed", "ready", "shipped", "cancelled", "on", "off", "confirmed")
# With the others offered no other kind of question is answered otherwise; products are refused without this one.
_IDLE = tuple(tool for tool in KNOWN if tool.name != "multiply")


def tool_call(draw: Draw) -> Example:
    question, arguments, key, tool, _ = _request(draw)
    answer = call_text(tool.name, arguments)
    return one_turn("tool calls", key, question, answer, tools=_offered(draw, tool), judged="call")


def tool_result(draw: Draw) -> Example:
    question, arguments, key, tool, chinese = _request(draw)
    result, told = _result(draw, tool, arguments, chinese)
    call = {"type": "function", "function": {"name": tool.name, "arguments": arguments}}
    messages: tuple[Message, ...] = (
        {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": result},
    )
    return Example("tool results", key, messages, told, tools=_offered(draw, tool))


def _result(draw: Draw, tool: Tool, arguments: Mapping[str, Any], chinese: bool) -> tuple[str, str]:
    """The tool's result, and its description: under its keys, under Chinese ones, or as a value alone."""
    form = draw.number(0, 19)
    if form < 3:
        value = _result_value(draw, draw.one(tool.result), arguments, chinese)
        told = f"答案是{shown(value)}。" if chinese else f"It is {shown(value)}."
        return draw.one((str, compact_json))(value), told
    if chinese and form < 9:
        result = {name: _chinese_value(draw, name) for name in draw.some(_ZH_RESULTS, draw.one((1, 1, 2)))}
        return compact_json(result), ",".join(f"{name}是{value}" for name, value in result.items()) + "。"
    result = {name: _result_value(draw, name, arguments, chinese) for name in tool.result}
    told = tool.told[chinese].format(**{name: shown(value) for name, value in {**arguments, **result}.items()})
    return compact_json(_renamed(draw, result)), told


_ZH_RESULTS = (
    "气温", "温度", "价格", "数量", "距离", "人口", "时间", "状态", "天气", "城市", "名字", "结果", "余额", "编号",
    "总数", "日期", "地点",
)  # fmt: skip
_ZH_STATES = ("已发货", "已完成", "成功", "失败", "打开", "关闭", "已取消", "处理中", "已付款", "在路上", "已确认")


def _chinese_value(draw: Draw, name: str) -> Any:
    if name == "状态":
        return draw.one(_ZH_STATES)
    if name == "天气":
        return draw.one(ZH_SKIES)
    if name in ("城市", "地点", "名字"):
        return draw.one(ZH_NAMES if name == "名字" else ZH_CITIES)
    if name == "结果" and draw.chance(0.5):
        return chinese_word(draw)
    return draw.number(2, draw.one((60, 60, 999, 999999)))


def _renamed(draw: Draw, result: Mapping[str, Any]) -> dict[str, Any]:
    """The result under other keys, where a known tool's keys are told by what they mean."""
    return {draw.one(_OTHER_KEYS.get(name, (name,))): value for name, value in result.items()}


def idle_tools(draw: Draw) -> tuple[dict[str, Any], ...]:
    """Tools that are offered though nothing asks for them."""
    offered = [invented(draw) if draw.chance(0.6) else draw.one(_IDLE) for _ in range(draw.number(1, 3))]
    return tuple(schema(tool) for tool in {tool.name: tool for tool in offered}.values())


def _request(draw: Draw) -> tuple[str, dict[str, Any], str, Tool, bool]:
    form = draw.number(0, 9)
    if form < 5:
        return _of_service(draw)
    return _of_known(draw) if form < 7 else _of_invented(draw)


def _of_known(draw: Draw) -> tuple[str, dict[str, Any], str, Tool, bool]:
    def make() -> tuple[Tool, str, dict[str, Any]]:
        tool = draw.one(KNOWN)
        phrase = draw.one(tool.requests)
        return tool, phrase, _arguments(draw, tool, not phrase.isascii())

    (tool, phrase, arguments), key = draw.until_admitted(make, lambda made: f"{made[0].name} {made[2]}")
    return _put(draw, phrase, arguments), arguments, key, tool, not phrase.isascii()


def _of_invented(draw: Draw) -> tuple[str, dict[str, Any], str, Tool, bool]:
    tool = invented(draw)
    phrase = draw.one(tool.requests)
    arguments = _arguments(draw, tool, not phrase.isascii())
    return _put(draw, phrase, arguments), arguments, invented_key(tool.name), tool, not phrase.isascii()


def _of_service(draw: Draw) -> tuple[str, dict[str, Any], str, Tool, bool]:
    offer = service(draw)
    phrase = draw.one(offer.tool.requests)
    chinese = not phrase.isascii()
    arguments = {name: slot_value(draw, kind, chinese) for name, kind in offer.kinds.items()}
    return _put(draw, phrase, arguments), arguments, invented_key(offer.tool.name), offer.tool, chinese


def _put(draw: Draw, phrase: str, arguments: Mapping[str, Any]) -> str:
    """The request with its arguments in it, asked as people ask."""
    switches = "turn" in phrase.lower() or "switch" in phrase.lower() or "light" in phrase.lower()
    said = {
        name: ("on" if value else "off") if switches and isinstance(value, bool) else shown(value)
        for name, value in arguments.items()
    }
    return mistyped(draw, loosened(draw, framed(draw, phrase, share=0.15))).format(**said)


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
    if name == "product" and {"a", "b"} <= set(arguments):
        return arguments["a"] * arguments["b"]
    if name in ("sent", "success", "available"):
        return draw.chance(0.5)
    if name == "time":
        return f"{draw.number(0, 23):02}:{draw.number(0, 59):02}"
    if name == "condition":
        return draw.one(ZH_SKIES if chinese else SKIES)
    if name == "status":
        return draw.one(_STATES)
    if name in ("song", "place", "name", "title", "answer", "message", "date", "translation", "email", "city", "text"):
        return value_of(draw, name, "string", chinese)
    if draw.chance(0.2):
        return draw.number(11, draw.one((999, 99999))) / draw.one((10, 10, 100))
    return draw.number(10, 59) if draw.chance(0.5) else draw.number(60, draw.one((9999, 9999, 999999)))


def _offered(draw: Draw, tool: Tool) -> tuple[dict[str, Any], ...]:
    """The tool among up to two others, which do other things."""
    offered = [tool]
    for _ in range(draw.one((0, 0, 1, 1, 2))):
        other = draw.one(KNOWN) if tool in KNOWN and draw.chance(0.5) else _unlike(draw, tool)
        if other.name not in (one.name for one in offered):
            offered.append(other)
    draw.random.shuffle(offered)
    return tuple(map(schema, offered))


def _unlike(draw: Draw, tool: Tool) -> Tool:
    """An invented tool; beside a service that isn't known, another service of which no word is alike."""
    if tool in KNOWN or draw.chance(0.4):
        return invented(draw)
    words = set(core_words(tool.name))
    while True:
        other = service(draw).tool
        if not words & set(core_words(other.name)) and "search" not in other.name:
            return other
