"""Tools that may be offered: seven that are always the same, and any number that are invented.

An invented tool's name, parameters and description are put together anew each time, so that a caller's own tools are
nothing unusual: their names and arguments are read off what is offered.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..example import Draw
from ..grammar import expanded
from ..wording import core
from .services import SERVICES, Service
from .values import NAMES_BY_TYPE, some_names
from .vocabulary import spelled_word


@dataclass(frozen=True)
class Tool:
    """A function that may be offered; what users say to have it called; what it gives back and how that is told."""

    name: str
    description: str
    parameters: Mapping[str, str]  # name to JSON type
    requests: tuple[str, ...]
    result: tuple[str, ...]  # keys of its result
    told: tuple[str, str]  # in English and Chinese
    is_explained: bool = False  # whether each parameter has a description of its own


KNOWN = (
    Tool("get_weather", "Weather in a city", {"city": "string"},
         ("What's the weather in {city}?", "How is the weather in {city}?", "Weather in {city}", "Weather {city}",
          "Is it raining in {city}?", "What is the weather like in {city}?", "{city}天气怎么样?",
          "查一下{city}的天气。"),
         ("temperature", "sky"),
         ("In {city} it is {temperature} degrees and {sky}.", "{city}现在{temperature}度,{sky}。")),
    Tool("get_time", "Local time in a city", {"city": "string"},
         ("What time is it in {city}?", "Tell me the time in {city}.", "Current time in {city}?", "Time in {city}?",
          "{city}现在几点?", "{city}几点了?"),
         ("hour", "minute"),
         ("It is {hour}:{minute} in {city}.", "{city}现在是{hour}点{minute}分。")),
    Tool("set_timer", "Start a timer", {"minutes": "integer"},
         ("Set a timer for {minutes} minutes.", "Wake me in {minutes} minutes.", "Start a {minutes} minute timer.",
          "Timer for {minutes} minutes", "{minutes}分钟后提醒我。", "设一个{minutes}分钟的定时器。"), ("minutes",),
         ("The timer is set to {minutes} minutes.", "定时器已设为{minutes}分钟。")),
    Tool("multiply", "Product of two numbers", {"a": "integer", "b": "integer"},
         ("What is {a} times {b}?", "Multiply {a} by {b}.", "{a} * {b} = ?", "{a} x {b}", "{a}*{b}",
          "{a}乘以{b}等于多少?", "计算{a}乘{b}。"),
         ("product",),
         ("The product is {product}.", "乘积是{product}。")),
    Tool("send_message", "Send a text to a person", {"to": "string", "text": "string"},
         ("Send {to} the message {text}.", "Tell {to}: {text}", "Text {text} to {to}.", "给{to}发消息:{text}"),
         ("sent_to",),
         ("Your message to {sent_to} is sent.", "给{sent_to}的消息已发送。")),
    Tool("get_price", "Price of a product", {"item": "string"},
         ("What does the {item} cost?", "How much is the {item}?", "Price of the {item}?", "Price of {item}",
          "{item}多少钱?", "查一下{item}的价格。"),
         ("price",), ("The {item} costs {price} euros.", "{item}的价格是{price}元。")),
    Tool("play_music", "Play an artist's songs", {"artist": "string"},
         ("Play something by {artist}.", "Play music by {artist}.", "I want to hear {artist}.", "Play {artist}",
          "播放{artist}的歌。"),
         ("song",),
         ("Now playing {song}.", "正在播放{song}。")),
)  # fmt: skip

_VERBS = (
    "find", "open", "start", "stop", "book", "check", "list", "delete", "move", "print", "save", "share", "read",
    "rent", "order", "cancel", "update", "create", "search", "load", "lock", "paint", "scan", "count", "clean", "rate",
    "show", "call", "fetch", "buy", "sell", "add", "remove", "look_up", "get", "set", "send", "make", "write", "play",
    "turn_on", "turn_off", "convert", "translate", "track",
)  # fmt: skip
_NOUNS = (
    "room", "ticket", "file", "light", "door", "photo", "note", "train", "recipe", "flight", "hotel", "table", "email",
    "event", "account", "report", "user", "page", "car", "movie", "song", "order", "stock", "task", "letter", "image",
    "map", "route", "payment", "printer", "alarm", "contact", "meeting", "parcel", "garden", "robot", "folder", "house",
    "stock_price", "phone_number", "bank_account", "train_ticket", "shopping_list", "opening_hours",
)  # fmt: skip
_RESULTS = (
    "status", "id", "total", "place", "answer", "title", "code", "level", "result", "name", "count", "price", "time",
    "temperature", "condition", "distance", "message", "date", "translation", "amount", "balance", "score", "email",
    "number", "city", "population", "sent", "success", "available", "duration", "value", "sum", "product", "text",
)  # fmt: skip
_DESCRIBED = ("{verb} a {noun}", "{verb} the {noun}", "{verb} {noun}", "{verb} a {noun} by {parameters}")
_ASKED = ("[Use|Call|Run|Invoke|Execute|Please use|Can you call|Please call] {name}", "Use the tool {name}",
    "[Please|I need to|I'd like to|Could you|Let's] {verb} the {noun}", "{verb} the {noun}", "{verb} a {noun}",
    "{verb} {noun}", "I want to {verb} the {noun}",
          "Can you {verb} a {noun}", "What is the {noun}", "The {noun}", "Use {name}", "Call {name}",
          "Run {name}")  # fmt: skip
_ZH_ASKED = ("用{name}", "调用{name}", "运行{name}")
# How an argument is said; how the first is joined to what is asked, and each to the one before.
_Way = tuple[str, str, str]
_NAMED: tuple[_Way, ...] = (
    ("{0} = {{{0}}}", " with ", " and "), ("the {0} {{{0}}}", " with ", " and "),
    ("{0} set to {{{0}}}", " with ", ", "), ("{0} is {{{0}}}", ". The ", ", "), ("{0}: {{{0}}}", " with ", ", "),
    ("{0}={{{0}}}", " with ", ", "), ("the {0} is {{{0}}}", ", ", " and "), ("{0} {{{0}}}", " with ", " and "),
    ("{0}: {{{0}}}", ", ", ", "), ("{0}={{{0}}}", " ", " "), ("{0} {{{0}}}", ", ", ", "), ("{0} {{{0}}}", " ", " "),
)  # fmt: skip
_ZH_NAMED: tuple[_Way, ...] = (
    ("{0} = {{{0}}}", " with ", " and "), ("the {0} {{{0}}}", " with ", " and "), ("{0} set to {{{0}}}", " with ",
    ", "), ("{0} is {{{0}}}", ". The ", ", "), ("{0}: {{{0}}}", " with ", ", "), ("{0}={{{0}}}", " with ", ", "), (
    "the {0} is {{{0}}}", ", ", " and "),
    ("{0}是{{{0}}}", ",", ","), ("{0}为{{{0}}}", ",", ","), ("{0}:{{{0}}}", ",", ","),
)  # fmt: skip
_UNNAMED = tuple(
    ("{{{0}}}", first, between)
    for first in (" ", " ", ": ", " for ", " of ", " in ", " to ", " from ", " on ", " called ")
    for between in (", ", " and ")
)
_ZH_UNNAMED = tuple(("{{{0}}}", first, between) for first in (":", " ", ",") for between in (",", "和"))
_ENDS, _ZH_ENDS = ("", "", ".", "?"), ("", "", "。")


def invented(draw: Draw) -> Tool:
    (name, verb, noun), _ = draw.until_admitted(lambda: _name(draw), lambda made: invented_key(made[0]))
    parameters = some_names(draw, draw.one((1, 1, 2, 2, 3)))
    results = draw.some(_RESULTS, draw.one((1, 1, 2)))
    described = draw.one(_DESCRIBED).format(verb=verb, noun=noun, parameters=" and ".join(parameters))
    description = described.capitalize()
    requests = tuple(_request(draw, name, verb, noun, list(parameters)) for _ in range(2))
    told = _telling(results)
    return Tool(name, description, parameters, requests, tuple(results), told, is_explained=draw.chance(0.2))


@dataclass(frozen=True)
class Offer:
    """A service under the names that it has this time; what kind of value each of its parameters takes."""

    tool: Tool
    kinds: Mapping[str, str]


def service(draw: Draw) -> Offer:
    row = draw.one(SERVICES)
    name, _ = draw.until_admitted(lambda: _service_name(draw, row), lambda made: invented_key(made))
    parameters = _slot_names(draw, row)
    braces = {slot: f"{{{parameter}}}" for slot, parameter in parameters.items()}
    braces |= {f"{slot}_name": parameter for slot, parameter in parameters.items()}
    requests = tuple(expanded(draw, draw.one(row.requests)).format(**braces) for _ in range(2))
    types = {parameter: row.slots[slot][1] for slot, parameter in parameters.items()}
    results = draw.some(_RESULTS, draw.one((1, 1, 2)))
    told = _telling(results)
    tool = Tool(
        name, expanded(draw, row.description), types, requests, tuple(results), told, is_explained=draw.chance(0.4)
    )
    return Offer(tool, {parameter: row.slots[slot][2] for slot, parameter in parameters.items()})


# Names of parameters by type, and nouns that are nobody's parameter.
_NAMES_OF = {kind: (*names, *_NOUNS) for kind, names in NAMES_BY_TYPE.items()}


def _service_name(draw: Draw, row: Service) -> str:
    """Joined by underscores, or in one word with capitals, or with a made-up word before or behind."""
    words = expanded(draw, row.names).split("_")
    if draw.chance(0.25):
        words = draw.one(([spelled_word(draw), *words], [*words, spelled_word(draw)]))
    return "_".join(words) if draw.chance(0.75) else words[0] + "".join(map(str.capitalize, words[1:]))


def _slot_names(draw: Draw, row: Service) -> dict[str, str]:
    """A name for the parameter of each slot, no two alike.

    Where the type alone tells which value it takes, it is now and then a name that says nothing.
    """
    kinds = [kind for _, kind, _ in row.slots.values()]
    while True:
        names = {
            slot: draw.one(_NAMES_OF[kind]) if kinds.count(kind) == 1 and draw.chance(0.25) else expanded(draw, grammar)
            for slot, (grammar, kind, _) in row.slots.items()
        }
        if len(set(names.values())) == len(names):
            return names


def _telling(results: list[str]) -> tuple[str, str]:
    """How a result with these keys is told, in English and Chinese."""
    english = " and the ".join(f"{key.replace('_', ' ')} is {{{key}}}" for key in results)
    return f"The {english}.", ",".join(f"{key}是{{{key}}}" for key in results) + "。"


def invented_key(name: str) -> str:
    return f"tool {core(name)}"


def schema(tool: Tool) -> dict[str, Any]:
    """The tool in OpenAI's form, as callers state it."""
    properties = {
        name: {"type": kind, "description": _explained(tool, name)} if tool.is_explained else {"type": kind}
        for name, kind in tool.parameters.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(tool.parameters)}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


_EXPLAINED = (
    "The {name}", "Name of the {name}", "The {name} to use", "Which {name}", "The {name} of the request", "{name}",
    "The {name} that is asked for", "What {name} it is", "{name} as the user says it",
)  # fmt: skip


def _explained(tool: Tool, name: str) -> str:
    """A parameter's description: always the same for the same tool."""
    place = zlib.crc32(f"{tool.name} {name}".encode()) % len(_EXPLAINED)
    text = _EXPLAINED[place].format(name=name.replace("_", " "))
    return text[0].upper() + text[1:]


def core_words(name: str) -> list[str]:
    """The words that a tool's name is made of, in small letters."""
    return re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower())


def _name(draw: Draw) -> tuple[str, str, str]:
    """A name, and the verb and the noun that its description and requests have."""
    verb, noun = draw.one(_VERBS), spelled_word(draw) if draw.chance(0.2) else draw.one(_NOUNS)
    words = f"{verb}_{noun}".split("_")
    if draw.chance(0.15):
        name = spelled_word(draw)
    else:
        name = "_".join(words) if draw.chance(0.75) else words[0] + "".join(map(str.capitalize, words[1:]))
    return name, verb.replace("_", " "), noun.replace("_", " ")


def _request(draw: Draw, name: str, verb: str, noun: str, parameters: list[str]) -> str:
    """What has the tool called. Arguments that are not named come in the order in which the tool states them."""
    chinese, is_named = draw.chance(0.25), draw.chance(0.5)
    opening = expanded(draw, draw.one(_ZH_ASKED if chinese else _ASKED)).format(name=name, verb=verb, noun=noun)
    ways = ((_UNNAMED, _NAMED), (_ZH_UNNAMED, _ZH_NAMED))[chinese][is_named]
    each, first, between = draw.one(ways)
    ordered = draw.some(parameters, len(parameters)) if is_named and draw.chance(0.3) else parameters
    said = first + between.join(each.format(parameter) for parameter in ordered)
    return opening[0].upper() + opening[1:] + said + draw.one(_ZH_ENDS if chinese else _ENDS)
