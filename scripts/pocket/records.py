"""Facts of a sentence written as JSON, with the keys named or a schema stated."""

from dataclasses import dataclass
from typing import Any

from .example import Draw, Example, asked, compact_json
from .values import shown, some_names, value_of
from .wording import worded


@dataclass(frozen=True)
class Record:
    """What a sentence states, by key."""

    sentences: tuple[str, ...]
    types: dict[str, str]


_PERSON = {"name": "string", "age": "integer", "city": "string"}
_BOUGHT = {"name": "string", "count": "integer", "item": "string", "price": "integer"}
_WEATHER = {"city": "string", "temperature": "integer", "sky": "string"}
_RECORDS = (
    Record(("{name} is {age} years old and lives in {city}.", "{name}, {age}, lives in {city}.",
            "My friend {name} from {city} is {age} years old.", "{name} is {age} and from {city}."), _PERSON),
    Record(("{name} bought {count} {item} for {price} euros.", "{name} paid {price} euros for {count} {item}."),
           _BOUGHT),
    Record(("It is {temperature} degrees and {sky} in {city}.", "In {city} it is {sky} at {temperature} degrees.",
            "{city}: {sky}, {temperature} degrees."), _WEATHER),
)  # fmt: skip
_ZH_RECORDS = (
    Record(("{name}今年{age}岁,住在{city}。", "我的朋友{name}住在{city},今年{age}岁。"), _PERSON),
    Record(("{name}花了{price}元买了{count}个{item}。", "{name}买了{count}个{item},一共{price}元。"), _BOUGHT),
)  # fmt: skip
_KEYS_STATED = (
    "Give {keys} as JSON: {text}", "Write this as JSON with the keys {keys}: {text}",
    "{text} Answer as JSON with {keys}.", "Extract {keys} as JSON. {text}", "JSON with {keys}: {text}",
    "{text} Give me {keys} as JSON.", "To JSON with keys {keys}: {text}", "Convert to JSON ({keys}): {text}",
)  # fmt: skip
_ZH_KEYS_STATED = (
    "用JSON给出{keys}:{text}", "{text}请用JSON回答,包含{keys}。", "把{keys}提取为JSON:{text}",
    "{text}用JSON给出{keys}。",
)  # fmt: skip
_SCHEMA_STATED = (
    "Answer as JSON to this schema: {schema}\n{text}", "{text}\nGive it as JSON that fits this schema: {schema}",
    "Extract JSON with this schema: {schema}\nText: {text}", "{text}\nSchema: {schema}", "JSON for {schema}\n{text}",
)  # fmt: skip
_ZH_SCHEMA_STATED = (
    "按此模式用JSON回答:{schema}\n{text}", "{text}\n请按这个模式输出JSON:{schema}",
)  # fmt: skip
# A field that is told after its name, and what stands between two.
_LISTED = (("{}: {{{}}}", ", "), ("{} {{{}}}", ", "), ("the {} is {{{}}}", " and "), ("{}={{{}}}", " "))


def json_answer(draw: Draw) -> Example:
    chinese = draw.chance(0.35)
    record = draw.one(_ZH_RECORDS if chinese else (*_RECORDS, _invented(draw)))
    values, key = draw.until_admitted(lambda: _values(draw, record, chinese), lambda made: f"json {made}")
    text = draw.one(record.sentences).format(**{name: shown(value) for name, value in values.items()})
    keys = draw.some(list(record.types), draw.number(2, len(record.types)))
    if draw.chance(0.35):
        schema = compact_json(_schema(record, keys))
        question = worded(draw, _ZH_SCHEMA_STATED if chinese else _SCHEMA_STATED, schema=schema, text=text)
    else:
        listed = ("、" if chinese else ", ").join(keys)
        question = worded(draw, _ZH_KEYS_STATED if chinese else _KEYS_STATED, keys=listed, text=text)
    return asked("json", key, question, compact_json({name: values[name] for name in keys}), judged="json")


def _values(draw: Draw, record: Record, chinese: bool) -> dict[str, Any]:
    return {
        name: draw.number(2, 99) if kind == "integer" else value_of(draw, name, kind, chinese)
        for name, kind in record.types.items()
    }


def _invented(draw: Draw) -> Record:
    """Fields of any name, each told after its name."""
    types = some_names(draw, draw.number(2, 3))
    each, between = draw.one(_LISTED)
    return Record((between.join(each.format(name, name) for name in types),), types)


def _schema(record: Record, keys: list[str]) -> dict[str, Any]:
    types = {name: {"type": record.types[name]} for name in keys}
    return {"type": "object", "properties": types, "required": keys}
