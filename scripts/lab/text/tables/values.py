"""Named values: what an argument or a field of this name and type may be, in English and Chinese.

Names of the table have values that fit them; any other name, made up ones too, gets one of its type.
"""

from typing import Any

from ..example import Draw
from .lists import CITIES, DAYS, ITEMS, NAMES, ZH_CITIES, ZH_ITEMS, ZH_NAMES
from .vocabulary import WORDS, spelled_word

SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy", "snowy")
ZH_SKIES = ("晴天", "多云", "下雨", "有风", "有雾", "下雪")
COLOUR_NAMES = (
    "red", "blue", "green", "yellow", "black", "white", "pink", "purple", "orange", "brown", "gray", "gold", "silver",
)  # fmt: skip
JOBS = (
    "teacher", "doctor", "nurse", "baker", "farmer", "lawyer", "engineer", "pilot", "writer", "painter", "singer",
    "driver", "cook", "dentist", "plumber", "judge", "designer", "programmer", "waiter", "scientist",
)  # fmt: skip
FOODS = (
    "pizza", "pasta", "rice", "soup", "bread", "cheese", "chocolate", "sushi", "salad", "cake", "ice cream", "apples",
    "noodles", "fish", "tacos", "curry", "pancakes",
)  # fmt: skip
PETS = ("dog", "cat", "horse", "parrot", "hamster", "rabbit", "goat", "turtle", "pony", "donkey", "mouse")
ANIMALS = (*PETS, "ant", "bee", "crab", "spider", "octopus", "hen", "duck", "cow", "fly", "beetle", "frog", "lion")
HOBBIES = (
    "football", "chess", "tennis", "swimming", "reading", "dancing", "cooking", "music", "painting", "hiking", "golf",
    "singing", "fishing", "running", "cycling", "gardening", "photography",
)  # fmt: skip
_POOLS = {
    "pet": (NAMES, ZH_NAMES), "hobby": (HOBBIES, HOBBIES), "kind": (PETS, PETS), "animal": (ANIMALS, ANIMALS),
    "weekday": (DAYS, DAYS),
    "color": (COLOUR_NAMES, COLOUR_NAMES), "job": (JOBS, JOBS), "food": (FOODS, FOODS), "person": (NAMES, ZH_NAMES),
    "recipient": (NAMES, ZH_NAMES),
    "destination": (CITIES, ZH_CITIES), "origin": (CITIES, ZH_CITIES), "location": (CITIES, ZH_CITIES),
    "product": (ITEMS,
    ZH_ITEMS), "user": (NAMES, ZH_NAMES), "author": (NAMES, ZH_NAMES),
    "name": (NAMES, ZH_NAMES), "to": (NAMES, ZH_NAMES), "city": (CITIES, ZH_CITIES), "item": (ITEMS, ZH_ITEMS),
    "sky": (SKIES, ZH_SKIES), "friend": (NAMES, ZH_NAMES), "place": (CITIES, ZH_CITIES),
    "from": (CITIES, ZH_CITIES),
}  # fmt: skip
# Names for the parameters of invented tools and the fields of invented records, by type.
NAMES_BY_TYPE = {
    "string": ("city", "name", "item", "place", "friend", "title", "color", "word", "topic", "file", "label", "note",
               "language", "street", "mode", "category", "query", "user", "from", "to", "date", "location",
               "destination", "origin",
               "person", "recipient", "product", "food", "job", "author", "text", "message", "key", "device", "room",
               "genre", "symbol"),
    "integer": ("count", "size", "floor", "hours", "year", "age", "level", "page", "amount", "limit", "id", "seats",
                "days", "number", "price", "minutes", "quantity", "people", "guests", "volume", "seconds", "width_px",
                "zip", "stars"),
    "number": ("weight", "speed", "width", "height", "rate", "distance", "temperature", "amount_paid", "ratio"),
    "boolean": ("loud", "fast", "private", "urgent", "hidden", "repeat", "enabled", "dark", "verbose", "express"),
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
        return draw.number(1, draw.one((9, 99, 99, 2025)))
    if kind == "number":
        return draw.number(11, 999) / draw.one((10, 10, 100)) if draw.chance(0.75) else draw.number(2, 99)
    if kind == "boolean":
        return draw.chance(0.5)
    if name == "time":
        return slot_value(draw, "clock", chinese)
    if name == "email":
        return f"{spelled_word(draw)}@{spelled_word(draw)}.com"
    if (
        name in ("text", "message", "title", "query", "day", "file", "topic", "room", "language", "symbol")
        and not chinese
    ):
        return slot_value(draw, {"message": "text", "symbol": "ticker"}.get(name, name), chinese)
    if name in _POOLS and draw.chance(0.8):
        return draw.one(_POOLS[name][chinese])
    return draw.one((_some_words, spelled_word))(draw)


def shown(value: Any) -> str:
    """A value as people write it into a sentence."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _some_words(draw: Draw) -> str:
    return " ".join(draw.some(WORDS, draw.number(1, 2)))


# --- what a slot of a service may hold -------------------------------------------------------------------------------

_LISTS = {
    "room": ("kitchen", "bedroom", "living room", "bathroom", "garage", "office", "hall", "garden", "basement",
    "attic", "cellar", "hallway", "study"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "tomorrow", "today",
    "next week", "2025-03-14", "May 5", "June 12", "tonight"),
    "currency": ("USD", "euros", "dollars", "EUR"), "currency2": ("yen", "pounds", "GBP", "JPY", "francs", "CHF",
    "CNY"),
    "scale": ("celsius", "fahrenheit", "Celsius", "Fahrenheit", "kelvin"),
    "unit": ("miles", "meters", "inches", "kg"), "unit2": ("kilometers", "feet", "centimeters", "yards", "pounds"),
    "language": ("French", "German", "Spanish", "Italian", "Japanese", "Korean", "Russian", "Portuguese", "Dutch",
    "Greek", "Chinese", "Arabic"),
    "ticker": ("AAPL", "TSLA", "GOOG", "MSFT", "AMZN", "NVDA", "META", "IBM", "Apple", "Tesla", "Google", "Nike",
    "Sony", "BMW"),
    "topic": ("sports", "politics", "science", "technology", "music", "health", "football", "economy", "weather",
    "travel", "space", "art"),
}  # fmt: skip
_MESSAGES = (
    "hello", "good night", "see you soon", "call me", "I am late", "thank you", "happy birthday", "come home",
    "dinner is ready", "on my way", "I will be there at 5", "see you tomorrow", "meet me at the station",
    "how are you", "I am home", "the meeting is cancelled", "buy milk", "good luck", "where are you", "I love you",
    "call the doctor", "team lunch", "dentist", "project update", "water the plants", "pay the rent",
)  # fmt: skip


def slot_value(draw: Draw, kind: str, chinese: bool) -> Any:
    """A value of this kind, as a request states it."""
    numbers = {
        "count": draw.number(2, draw.one((12, 99, 500))),
        "hour": draw.number(1, 23),
        "digit": draw.number(1, 10),
        "on": draw.chance(0.5),
        "id": draw.number(100, draw.one((999, 9999, 99999))),
    }
    if kind in numbers:
        return numbers[kind]
    if kind == "degrees":
        return draw.number(1, 300) if draw.chance(0.6) else draw.number(11, 999) / 10
    return _text_value(draw, kind, chinese)


def _text_value(draw: Draw, kind: str, chinese: bool) -> str:
    if kind in _LISTS:
        return draw.one(_LISTS[kind])
    if kind == "clock":
        return f"{draw.number(0, 23):{draw.one(('', '02'))}}:{5 * draw.number(0, 11):02}{draw.one(('', '', '', ' pm'))}"
    if kind == "expression":
        sign, gap = draw.one("+-*/×"), draw.one(("", " "))
        more = f"{gap}{draw.one('+-*')}{gap}{draw.number(2, 99)}" if draw.chance(0.25) else ""
        return f"{draw.number(2, 999)}{gap}{sign}{gap}{draw.number(2, 99)}{more}"
    if kind == "code":
        return draw.one(
            (
                f"{draw.one('ABCDXZ')}{draw.number(100, 9999)}",
                str(draw.number(1000, 99999)),
                f"{spelled_word(draw)[:3].upper()}-{draw.number(10, 999)}",
            )
        )
    if kind in ("file", "file2"):
        return (
            spelled_word(draw) + draw.one(("", "2")) + draw.one((".txt", ".pdf", ".py", ".csv", ".md", ".sh", ".png"))
        )
    if kind == "text":
        return draw.one(_MESSAGES) if draw.chance(0.5) else " ".join(draw.some(WORDS, draw.number(1, 4)))
    if kind in ("query", "word"):
        return " ".join(draw.some(WORDS, 1 if kind == "word" else draw.number(1, 3)))
    if kind == "artist":
        return (
            draw.one(NAMES) + " " + spelled_word(draw).capitalize()
            if draw.chance(0.6)
            else "The " + draw.one(WORDS).capitalize() + "s"
        )
    if kind == "place":
        name = draw.one((draw.one(NAMES), spelled_word(draw).capitalize()))
        return draw.one((name, f"{name}'s", f"The {draw.one(WORDS)}"))
    if kind == "title":
        return " ".join(word.capitalize() for word in draw.some(WORDS, draw.number(1, 3)))
    if kind == "food":
        return draw.one(FOODS)
    if kind == "color":
        return draw.one(COLOUR_NAMES)
    if draw.chance(0.12) and not chinese:
        made = spelled_word(draw)
        return made if kind == "item" else made.capitalize()
    if kind == "item" and not chinese:
        return draw.one((*ITEMS, *ITEMS, *WORDS)) + draw.one(("", "", "s"))
    pool = {
        "city": (CITIES, ZH_CITIES),
        "city2": (CITIES, ZH_CITIES),
        "name": (NAMES, ZH_NAMES),
        "item": (ITEMS, ZH_ITEMS),
    }[kind]
    return draw.one(pool[chinese])
