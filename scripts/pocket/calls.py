"""Answers that programs read: JSON to a stated schema, tool calls, and the use of what a tool gave back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .example import Draw, Example, Message, asked, call_text, compact_json
from .tables import CITIES, ITEMS, NAMES, ZH_CITIES, ZH_ITEMS, ZH_NAMES

# --- JSON ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """What a sentence states, by key."""

    sentences: tuple[str, ...]
    keys: tuple[str, ...]


_RECORDS = (
    Record(
        ("{name} is {age} years old and lives in {city}.", "{name}, {age}, lives in {city}.",
         "My friend {name} from {city} is {age} years old."), ("name", "age", "city")),
    Record(
        ("{name} bought {count} {item} for {price} euros.", "{name} paid {price} euros for {count} {item}."),
        ("name", "count", "item", "price")),
    Record(
        ("It is {temperature} degrees and {sky} in {city}.", "In {city} it is {sky} at {temperature} degrees."),
        ("city", "temperature", "sky")),
)  # fmt: skip
_ZH_RECORDS = (
    Record(("{name}今年{age}岁,住在{city}。", "我的朋友{name}住在{city},今年{age}岁。"), ("name", "age", "city")),
    Record(("{name}花了{price}元买了{count}个{item}。", "{name}买了{count}个{item},一共{price}元。"),
           ("name", "count", "item", "price")),
)  # fmt: skip
_INTEGERS = (
    "age", "count", "price", "temperature",
)  # fmt: skip
_SKIES = (
    "sunny", "cloudy", "rainy", "windy", "foggy", "snowy",
)  # fmt: skip
_KEYS_STATED = (
    "Give {keys} as JSON: {text}", "Write this as JSON with the keys {keys}: {text}",
    "{text} Answer as JSON with {keys}.",
    "Extract {keys} as JSON. {text}", "JSON with {keys}, please: {text}",
)  # fmt: skip
_ZH_KEYS_STATED = (
    "用JSON给出{keys}:{text}", "{text}请用JSON回答,包含{keys}。", "把{keys}提取为JSON:{text}",
)  # fmt: skip
_SCHEMA_STATED = (
    "Answer as JSON to this schema: {schema}\n{text}", "{text}\nGive it as JSON that fits this schema: {schema}",
    "Extract JSON with this schema: {schema}\nText: {text}",
)  # fmt: skip
_ZH_SCHEMA_STATED = (
    "按此模式用JSON回答:{schema}\n{text}", "{text}\n请按这个模式输出JSON:{schema}",
)  # fmt: skip


def json_answer(draw: Draw) -> Example:
    chinese = draw.chance(0.35)
    record = draw.one(_ZH_RECORDS if chinese else _RECORDS)
    values, key = draw.until_admitted(lambda: _values(draw, record, chinese), lambda made: f"json {made}")
    text = draw.one(record.sentences).format(**values)
    keys = draw.some(record.keys, draw.number(2, len(record.keys)))
    if draw.chance(0.35):
        form, stated = (_ZH_SCHEMA_STATED if chinese else _SCHEMA_STATED), compact_json(_schema(keys))
        question = draw.one(form).format(schema=stated, text=text)
    else:
        form = _ZH_KEYS_STATED if chinese else _KEYS_STATED
        question = draw.one(form).format(keys=("、" if chinese else ", ").join(keys), text=text)
    return asked("json", key, question, compact_json({name: values[name] for name in keys}), judged="json")


def _values(draw: Draw, record: Record, chinese: bool) -> dict[str, Any]:
    pools = {"name": ZH_NAMES, "city": ZH_CITIES, "item": ZH_ITEMS} if chinese else {
        "name": NAMES, "city": CITIES, "item": ITEMS, "sky": _SKIES}  # fmt: skip
    return {name: draw.number(2, 99) if name in _INTEGERS else draw.one(pools[name]) for name in record.keys}


def _schema(keys: list[str]) -> dict[str, Any]:
    types = {name: {"type": "integer" if name in _INTEGERS else "string"} for name in keys}
    return {"type": "object", "properties": types, "required": keys}


# --- tools -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tool:
    """A function that may be offered; what users say to have it called; what it gives back and how that is told."""

    name: str
    description: str
    parameters: Mapping[str, str]  # name to JSON type
    requests: tuple[str, ...]
    result: tuple[str, ...]  # keys of its result
    told: tuple[str, str]  # in English and Chinese


TOOLS = (
    Tool("get_weather", "Weather in a city", {"city": "string"},
         ("What's the weather in {city}?", "How is the weather in {city}?", "Weather in {city}, please.",
          "Is it raining in {city}?", "{city}天气怎么样?", "查一下{city}的天气。"), ("temperature", "sky"),
         ("In {city} it is {temperature} degrees and {sky}.", "{city}现在{temperature}度,{sky}。")),
    Tool("get_time", "Local time in a city", {"city": "string"},
         ("What time is it in {city}?", "Tell me the time in {city}.", "Current time in {city}?", "{city}现在几点?"),
         ("hour", "minute"),
         ("It is {hour}:{minute} in {city}.", "{city}现在是{hour}点{minute}分。")),
    Tool("set_timer", "Start a timer", {"minutes": "integer"},
         ("Set a timer for {minutes} minutes.", "Wake me in {minutes} minutes.", "Start a {minutes} minute timer.",
          "{minutes}分钟后提醒我。", "设一个{minutes}分钟的定时器。"), ("minutes",),
         ("The timer is set to {minutes} minutes.", "定时器已设为{minutes}分钟。")),
    Tool("multiply", "Product of two numbers", {"a": "integer", "b": "integer"},
         ("What is {a} times {b}?", "Multiply {a} by {b}.", "{a} * {b} = ?", "{a}乘以{b}等于多少?", "计算{a}乘{b}。"),
         ("product",),
         ("The product is {product}.", "乘积是{product}。")),
    Tool("send_message", "Send a text to a person", {"to": "string", "text": "string"},
         ("Send {to} the message {text}.", "Tell {to}: {text}", "Text {text} to {to}.", "给{to}发消息:{text}"),
         ("sent_to",),
         ("Your message to {sent_to} is sent.", "给{sent_to}的消息已发送。")),
    Tool("get_price", "Price of a product", {"item": "string"},
         ("What does the {item} cost?", "How much is the {item}?", "Price of the {item}?", "{item}多少钱?",
          "查一下{item}的价格。"),
         ("price",), ("The {item} costs {price} euros.", "{item}的价格是{price}元。")),
    Tool("play_music", "Play an artist's songs", {"artist": "string"},
         ("Play something by {artist}.", "Play music by {artist}.", "I want to hear {artist}.", "播放{artist}的歌。"),
         ("song",),
         ("Now playing {song}.", "正在播放{song}。")),
)  # fmt: skip
_GREETINGS = (
    "hello", "good night", "see you soon", "call me", "I am late", "thank you", "happy birthday", "come home",
)  # fmt: skip
_ZH_SKIES = (
    "晴天", "多云", "下雨", "有风", "有雾", "下雪",
)  # fmt: skip


def tool_schema(tool: Tool) -> dict[str, Any]:
    """The tool in OpenAI's form, as callers state it."""
    properties = {name: {"type": kind} for name, kind in tool.parameters.items()}
    parameters = {"type": "object", "properties": properties, "required": list(tool.parameters)}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


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


def _request(draw: Draw) -> tuple[str, dict[str, Any], str, Tool, bool]:
    def make() -> tuple[Tool, str, dict[str, Any]]:
        tool = draw.one(TOOLS)
        phrase = draw.one(tool.requests)
        return tool, phrase, {name: _argument(draw, name, not phrase.isascii()) for name in tool.parameters}

    (tool, phrase, arguments), key = draw.until_admitted(make, lambda made: f"{made[0].name} {made[2]}")
    return phrase.format(**arguments), arguments, key, tool, not phrase.isascii()


def _argument(draw: Draw, name: str, chinese: bool) -> Any:
    if name in ("a", "b", "minutes"):
        return draw.number(2, 99)
    if name == "text":
        return draw.one(_GREETINGS) if draw.chance(0.5) else " ".join(draw.some(ITEMS, 2))
    if name == "artist":
        return draw.one(NAMES) + " " + draw.one(CITIES)
    pools = {"city": (CITIES, ZH_CITIES), "item": (ITEMS, ZH_ITEMS), "to": (NAMES, ZH_NAMES)}
    return draw.one(pools[name][chinese])


def _result_value(draw: Draw, name: str, arguments: Mapping[str, Any], chinese: bool) -> Any:
    if name == "minutes":
        return arguments["minutes"]
    if name == "sent_to":
        return arguments["to"]
    if name == "song":
        return " ".join(draw.some(ITEMS, 2))
    if name == "sky":
        return draw.one(_ZH_SKIES if chinese else _SKIES)
    if name == "product":
        return arguments["a"] * arguments["b"]
    return draw.number(10, 59)


def _offered(draw: Draw, tool: Tool) -> tuple[dict[str, Any], ...]:
    """The tool among up to two others."""
    offered = [tool, *draw.some([other for other in TOOLS if other is not tool], draw.number(0, 2))]
    draw.random.shuffle(offered)
    return tuple(map(tool_schema, offered))
