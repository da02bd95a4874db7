"""Named values: what an argument or a field of this name and type may be, in English and Chinese.

Names of the table have values that fit them; any other name, made up ones too, gets one of its type. Knows nothing of
tools and records, which are put together from these.
"""

from typing import Any

from .example import Draw
from .numbers import spelled_word
from .tables import CITIES, ITEMS, NAMES, WORDS, ZH_CITIES, ZH_ITEMS, ZH_NAMES

SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy", "snowy")
ZH_SKIES = ("晴天", "多云", "下雨", "有风", "有雾", "下雪")
_POOLS = {
    "name": (NAMES, ZH_NAMES), "to": (NAMES, ZH_NAMES), "city": (CITIES, ZH_CITIES), "item": (ITEMS, ZH_ITEMS),
    "sky": (SKIES, ZH_SKIES), "friend": (NAMES, ZH_NAMES), "place": (CITIES, ZH_CITIES),
    "from": (CITIES, ZH_CITIES),
}  # fmt: skip
# Names for the parameters of invented tools and the fields of invented records, by type.
NAMES_BY_TYPE = {
    "string": ("city", "name", "item", "place", "friend", "title", "color", "word", "topic", "file", "label", "note",
               "language", "street", "mode", "category", "query", "user", "from", "to", "date"),
    "integer": ("count", "size", "floor", "hours", "year", "age", "level", "page", "amount", "limit", "id", "seats",
                "days", "number", "price", "minutes"),
    "number": ("weight", "speed", "width", "height", "rate", "distance"),
    "boolean": ("loud", "fast", "private", "urgent", "hidden", "repeat"),
}  # fmt: skip
_TYPES = ("string", "string", "string", "integer", "integer", "number", "boolean")


def some_names(draw: Draw, count: int) -> dict[str, str]:
    """So many names with their types; one in five is made up."""
    named: dict[str, str] = {}
    while len(named) < count:
        kind = draw.one(_TYPES)
        named[spelled_word(draw) if draw.chance(0.2) else draw.one(NAMES_BY_TYPE[kind])] = kind
    return named


def value_of(draw: Draw, name: str, kind: str, chinese: bool) -> Any:
    if kind == "integer":
        return draw.number(2, 99 if draw.chance(0.7) else 2025)
    if kind == "number":
        return draw.number(11, 999) / 10
    if kind == "boolean":
        return draw.chance(0.5)
    if name in _POOLS and draw.chance(0.8):
        return draw.one(_POOLS[name][chinese])
    return draw.one((_some_words, spelled_word))(draw)


def shown(value: Any) -> str:
    """A value as people write it into a sentence."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _some_words(draw: Draw) -> str:
    return " ".join(draw.some(WORDS, draw.number(1, 2)))
