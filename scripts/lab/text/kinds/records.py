"""Facts of a sentence written as JSON, with the keys named or a schema stated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..example import Draw, Example, compact_json, one_turn
from ..grammar import expanded, phrased
from ..tables.lists import ITEMS, ZH_ITEMS
from ..tables.values import shown, some_names, value_of
from ..tables.vocabulary import WORDS


@dataclass(frozen=True)
class Record:
    """The fields that a sentence states, by key."""

    sentences: tuple[str, ...]
    types: dict[str, str]
    known: Mapping[str, Any] = field(default_factory=dict)  # values that the sentences state in words


_PERSON = {"name": "string", "age": "integer", "city": "string"}
_BOUGHT = {"name": "string", "count": "integer", "item": "string", "price": "integer"}
_WEATHER = {"city": "string", "temperature": "integer", "sky": "string"}
_RECORDS = (
    Record(("{name} is {age}[ years old|] and [lives in|is from|comes from|works in|was born in] {city}.",
    "{name}, {age}, [lives in|from] {city}.",
    "[My friend|My brother|My neighbour|The student] {name} from {city} is {age} years old.",
    "{name} [lives in|comes from] {city} and is {age}[ years old|].",
    "[Hi, I am|I am|My name is] {name}, {age} years old, [living in|from] {city}.",
    "{name} ({age}) [lives in|from] {city}", "{age}-year-old {name} [lives in|comes from] {city}."), _PERSON),
    Record(("{name} bought {count} {item} for {price} [euros|dollars].",
    "{name} paid {price} [euros|dollars] for {count} {item}.",
    "{count} {item} were bought by {name} for {price} [euros|dollars].",
    "For {price} [euros|dollars], {name} got {count} {item}."),
           _BOUGHT),
    Record(("It is {temperature} degrees and {sky} in {city}.", "In {city} it is {sky} at {temperature} degrees.",
            "{city}: {sky}, {temperature} degrees.", "Today {city} is {sky} with {temperature} degrees.",
            "The weather in {city} is {sky}, {temperature} degrees."), _WEATHER),
    Record(("[The book |]{title} [was written by|is by] {author} in {year}.", "{author} wrote {title} in {year}.",
    "{title} by {author} ({year})", "In {year}, {author} published {title}."), {"title": "string", "author": "string",
    "year": "integer"}),
    Record(("The {item} costs {price} [euros|dollars] and is {color}.",
    "[A|The] {color} {item} [costs|is] {price} [euros|dollars].", "{item}: {color}, {price} [euros|dollars]"), {"item":
    "string", "price": "integer", "color": "string"}),
    Record(("{name} works as a {job} in {city}.", "{name} is a {job} from {city}.",
    "The {job} {name} lives in {city}."), {"name": "string", "job": "string", "city": "string"}),
    Record(("The [flight|train|bus] from {from} to {to} costs {price} [euros|dollars].",
    "From {from} to {to} for {price} [euros|dollars].", "{price} [euros|dollars] from {from} to {to}"), {"from":
    "string", "to": "string", "price": "integer"}),
    Record(("{name}'s email is {email}.", "[You can reach|Write to] {name} at {email}.",
    "{name} has the email {email}.", "Contact: {name}, {email}"), {"name": "string", "email": "string"}),
    Record(("[The meeting with|I meet|Meeting with] {name} [is on|on] {day} in {city}.",
    "On {day} I meet {name} in {city}."), {"name": "string", "day": "string", "city": "string"}),
    Record(("{name} is {age}[ years old|].", "{name}, {age}", "{name} turned {age}.",
    "{name}, who is {age}, [likes tea|has a dog|plays chess]."), {"name": "string", "age": "integer"}),
    Record(("{name} [likes|loves|prefers|eats] {food}.", "{name}'s favourite food is {food}."), {"name": "string",
    "food": "string"}),
    Record(("{name} has a [dog|cat|horse|parrot] [called|named] {pet}.",
    "{name}'s [dog|cat|horse] is [called|named] {pet}.",
    "{pet} is the [dog|cat] of {name}."), {"name": "string", "pet": "string"}),
    Record(("[The|My|Our] [meeting|lesson|train|bus|party|dinner|class] [is|is today|is tomorrow|starts] at {time}.",
    "[Dinner|Lunch|School|Class] [starts|begins|is] at {time}."), {"time": "string"}),
    Record(("[The|My|Our] [train|bus|party|dinner|class|lesson|flight] [is|starts|leaves] on {weekday} at {time}.",
    "[On |]{weekday} at {time}[ we meet| I have a lesson| the train leaves|].",
    "At {time} on {weekday}: [party|lunch]"),
    {"weekday": "string", "time": "string"}),
    Record(("[The|A] {item} has {legs} legs.", "{item}: {legs} legs", "{legs} legs has the {item}."),
    {"item": "string", "legs": "integer"}),
    Record(("[The|Our|This] [house|flat|school|car|hotel] has {windows} windows.",), {"windows": "integer"}),
    Record(("[The|A|An] {animal} has {legs} legs.", "{animal}s have {legs} legs.",
    "{legs} legs: that is [a|the] {animal}."), {"animal": "string", "legs": "integer"}),
    Record(("[The film|The movie|The show] {title} [came out|was made|is from] in {year}.", "{title} ({year})"),
    {"title": "string", "year": "integer"}),
    Record(("{name} [plays|likes|enjoys|does] {hobby}.", "{name}'s hobby is {hobby}."),
    {"name": "string", "hobby": "string"}),
    Record(("{name} has a {kind} [called|named] {pet}.", "{name}'s {kind} is [called|named] {pet}.",
    "The {kind} of {name} is [called|named] {pet}."), {"name": "string", "kind": "string", "pet": "string"}),
    Record(("{name}, {age}[ years|], [likes|plays|enjoys] {hobby}.", "{name} is {age} and [likes|plays] {hobby}."),
    {"name": "string", "age": "integer", "hobby": "string"}),
    Record(("[The book is called|This book is] {title}, it costs {price} [euros|dollars].",
    "{title} for {price} [euros|dollars]"), {"title": "string", "price": "integer"}),
    Record(("The team {team} has {points} points.", "{team}: {points} points", "{team} scored {points} points."), {
    "team": "string", "points": "integer"}),
)  # fmt: skip
_ZH_RECORDS = (
    Record(("{name}[今年|]{age}岁,[住在|来自]{city}。", "我的[朋友|同学]{name}住在{city},今年{age}岁。",
    "{name}住在{city},{age}岁。"),
    _PERSON),
    Record(("{name}花了{price}元买了{count}个{item}。", "{name}买了{count}个{item},一共{price}元。",
    "{name}用{price}元买了{count}个{item}。"), _BOUGHT),
    Record(("{city}[今天|]{sky},{temperature}度。", "{city}的天气是{sky},气温{temperature}度。"), _WEATHER),
    Record(("{name}{age}岁。", "{name}今年{age}岁。"), {"name": "string", "age": "integer"}),
    Record(("[书名|书|这本书]《{title}》[卖|要|售价|]{price}元。", "《{title}》[这本书|]{price}元[一本|]。"),
    {"title": "string", "price": "integer"}),
    Record(("{name}[喜欢|爱吃|想买]{item}。", "{item}是{name}的。"), {"name": "string", "item": "string"}),
    Record(("{item}[的价格是|卖|要]{price}元[一个|]。", "一个{item}{price}元。"), {"item": "string",
    "price": "integer"}),
    Record(("{name}从{from}去{to}。", "{name}[要|想]从{from}到{to}。"), {"name": "string", "from": "string",
    "to": "string"}),
)  # fmt: skip
_GIVE = "[Give|Give me|Write|Return|Output|Extract|Show|Put|List|Get|Find|Provide|State|Produce]"
_KEYS_STATED = (
    f"{_GIVE} {{keys}} as JSON: {{text}}", "[Write|Put|Turn|Convert|Make|Transform] [this|the following|this sentence|"
    "the sentence] [as|into|to] JSON with [the |]keys {keys}: {text}",
    "{text} [Answer|Reply|Respond|Return] [as|in|with] JSON with [the keys |keys |]{keys}[.|]",
    "[Extract|Give me|Find] {keys} as JSON[.|:] {text}", "JSON with {keys}: {text}", "JSON with keys {keys}: {text}",
    "{text} Give me {keys} as JSON[.|]", "[To|As] JSON with keys {keys}: {text}", "Convert to JSON ({keys}): {text}",
    "[Make|Create|Write|Build] [JSON|a JSON object] with [the fields|fields|the keys|keys] {keys} from[ this|]: "
    "{text}", "[Extract|Pull out|Find] the [fields|keys] {keys}[ in JSON| as JSON|]: {text}",
    "[Text|Sentence]: {text}\n[JSON|Give JSON] with [keys |]{keys}[.|:]",
    "{text}\n[Return|Write|Give] JSON with [the keys |keys |fields |]{keys}[.|]",
    "From \"{text}\" [extract|give|get] {keys} as JSON[.|]",
    "[Give|Return|Answer with] a JSON object with {keys} for: {text}", "{text} -> JSON with {keys}",
    "{text} As JSON with {keys}[ please|.|]", "Keys: {keys}. [Write as JSON|Make JSON|JSON]: {text}",
    "[I want|Make me|Write] [a JSON object|an object|JSON] with the [keys|fields|properties] {keys}. {text}",
    "[Text|Fact|Input|Note]: {text} [Write|Make|Output] [a json object|json|JSON] with {keys}[.|]",
    "{text} [The|Its] [keys|fields] [should be|must be|shall be|are to be|are] {keys}[.|]",
    "[Make it|To|Into|As] [json|JSON][:|.|] {text} [The|Its] [keys|fields] [should be|must be|are] {keys}[.|]",
    "[JSON|json][, please|][, |: ][fields|keys|with] {keys}[.|:] {text}",
    "{text} [Make it JSON|To JSON|JSON please][.|,|:] [the keys are|use the keys|keys are|name the keys] {keys}[.|]",
    "[Make|Turn this into|To|Into] [json|JSON][:| ->| =>] {text} [Use|Take] the [keys|fields] {keys}[.|]",
    "[Put|Write] [it|the facts|this] [as|into|in] JSON[, keys|; keys| (keys)|, the keys] {keys}: {text}",
)  # fmt: skip
_ZH_KEYS_STATED = (
    "[用|以]JSON[给出|写出|输出|提取]{keys}:{text}", "{text}请用JSON回答,包含{keys}。",
    "[把|将]{keys}提取为JSON:{text}", "{text}[用JSON给出|提取]{keys}[。|]",
    "[写成|转成|输出]JSON,[键为|字段为|包含]{keys}:{text}", "{text}\n输出JSON,[键是|包含]{keys}。",
)  # fmt: skip
_NO_KEYS_STATED = (
    "[Write|Put|Turn|Convert|Give|Give me|Make|Show] [this|it|the following|that|this sentence|the facts] [as|into|in|"
    "to] JSON: {text}", "{text} [As|In|Give it as|Answer in|Answer as|Reply in|Write it as] JSON[.|]", "JSON: {text}",
    "[To|As] JSON: {text}", "{text} [把它写成|用|转成]JSON。",
    "[Extract|Give me|Get] the [data|facts|information|details][ as JSON|]: {text}",
    "[Fill in|Fill out|Complete|Make] [a form|the form|a record|an entry][ as JSON|][:| with| for| from][ this:|] "
    "{text}",
)  # fmt: skip
_SCHEMA_STATED = (
    "[Answer|Reply|Respond] [as|in|with] JSON [to|that fits|matching|following] this schema: {schema}\n{text}",
    "{text}\n[Give|Write|Return] it as JSON that [fits|matches|follows] this schema: {schema}",
    "Extract JSON with this schema: {schema}\nText: {text}", "{text}\nSchema: {schema}", "JSON for {schema}\n{text}",
    "Schema: {schema}\n[Text: |]{text}", "[Use|Follow|Fill in] this [JSON schema|schema]: {schema}\n{text}",
    "{text}\n[Use|Follow|Fill in] this [JSON schema|schema]: {schema}",
)  # fmt: skip
_ZH_SCHEMA_STATED = (
    "按[此|这个]模式用JSON回答:{schema}\n{text}", "{text}\n请按这个模式输出JSON:{schema}", "{text}\n模式:{schema}",
)  # fmt: skip
# What is so many times there, and what is so or not so.
_COUNTED = (
    "[We have|There are|I see|I need|I bought|Give me|In the box are|] {pairs}[.|!|]",
    "[We need|He ordered|They sold|She has] {pairs}[.|]",
)
_ZH_COUNTED = ("[我有|一共|我买了|这里有|]{pairs}[。|]",)
_JOINED = (" and ", ", ", " for ", " with ", ", and ", " on ")
_SO = (
    ("open", "[is open|is open today|has opened|isn't closed]", "[is closed|is closed today|isn't open|has closed]"),
    ("married", "is married", "[is not married|isn't married|is single]"),
    ("available", "is available", "[is not available|isn't available|is sold out]"),
    ("active", "is active", "[is not active|is inactive|isn't active]"),
    ("paid", "[has been paid|is paid|has paid]", "[has not been paid|is not paid|is unpaid]"),
    ("new", "is new", "[is not new|is used|is old]"), ("ready", "is ready", "[is not ready|isn't ready]"),
    ("member", "is a member", "[is not a member|isn't a member]"), ("clean", "is clean", "[is not clean|isn't clean]"),
    ("warm", "is warm", "[is not warm|isn't warm|is cold]"), ("locked", "is locked", "[is not locked|isn't locked]"),
    ("rented", "is rented", "[is not rented|isn't rented]"), ("lit", "is lit", "[is not lit|isn't lit|is dark]"),
)  # fmt: skip
# A field that is told after its name, and what stands between two.
_LISTED = (("{}: {{{}}}", ", "), ("{} {{{}}}", ", "), ("the {} is {{{}}}", " and "), ("{}={{{}}}", " "))


def json_answer(draw: Draw) -> Example:
    chinese = draw.chance(0.3)
    form, record = draw.number(0, 99), _record(draw, chinese)
    # What nobody names can't be called otherwise.
    record = record if form < 14 else _renamed(draw, record)
    if (found := draw.admitted(lambda: _values(draw, record, chinese), lambda made: f"json {made}")) is None:
        return json_answer(draw)  # of two fields that are true or false all values may stand on the other side
    values, key = found
    text = expanded(draw, draw.one(record.sentences)).format(**{name: shown(value) for name, value in values.items()})
    keys = draw.some(list(record.types), draw.number(min(2, len(record.types)), len(record.types)))
    if form < 14:
        keys = list(record.types)
        question = phrased(draw, _NO_KEYS_STATED, text=text)
    elif form < 40:
        schema = compact_json(_schema(draw, record, keys))
        question = phrased(draw, _ZH_SCHEMA_STATED if chinese else _SCHEMA_STATED, schema=schema, text=text)
    else:
        ways = _ZH_KEYS_STATED if chinese else _KEYS_STATED
        question = phrased(draw, ways, keys=_keys(draw, keys, chinese), text=text)
    return one_turn("json", key, question, compact_json({name: values[name] for name in keys}), judged="json")


def _record(draw: Draw, chinese: bool) -> Record:
    form = draw.number(0, 19)
    if form < 3:
        return _counted(draw, chinese)
    if form < 5 and not chinese:
        return _so(draw)
    return draw.one(_ZH_RECORDS) if chinese else draw.one(_RECORDS) if form < 16 else _invented(draw)


# What a field may be called, whose value the sentence states without its name.
_OTHER_NAMES = {
    "name": ("person", "who", "owner", "buyer", "user", "customer", "full_name"),
    "city": ("town", "place", "location", "where"), "age": ("years", "old"),
    "count": ("number", "quantity", "amount", "how_many"), "item": ("thing", "product", "what", "object"),
    "kind": ("animal", "species", "type", "pet_kind"), "pet": ("animal_name", "pet_name", "called"),
    "animal": ("creature", "pet", "name", "species"), "weekday": ("day", "on", "when"), "time": ("hour", "at", "clock"),
    "price": ("cost", "euros", "total", "paid"), "temperature": ("degrees", "temp"), "sky": ("weather", "condition"),
    "title": ("book", "film", "name_of_book"), "author": ("writer", "by"), "year": ("published", "when"),
    "color": ("colour", "tone"),
    "job": ("profession", "work", "occupation"), "from": ("origin", "start"), "to": ("destination", "end"),
    "email": ("mail", "address"), "day": ("date", "when", "weekday"), "food": ("dish", "favorite", "likes"),
    "team": ("club", "group"), "points": ("score",),
}  # fmt: skip


def _renamed(draw: Draw, record: Record) -> Record:
    """Put some of its fields under other names."""
    if record.known or not draw.chance(0.35):
        return record
    names = {name: draw.one(_OTHER_NAMES[name]) for name in record.types if name in _OTHER_NAMES and draw.chance(0.5)}
    # A field that is told with its name keeps it.
    names = {
        name: other
        for name, other in names.items()
        if other not in record.types
        and not any(name in sentence.replace(f"{{{name}}}", "") for sentence in record.sentences)
    }
    if len(set(names.values())) < len(names):
        return record
    sentences = tuple(_with_names(sentence, names) for sentence in record.sentences)
    return Record(sentences, {names.get(name, name): kind for name, kind in record.types.items()})


def _with_names(sentence: str, names: Mapping[str, str]) -> str:
    for name, other in names.items():
        sentence = sentence.replace(f"{{{name}}}", f"{{{other}}}")
    return sentence


def _counted(draw: Draw, chinese: bool) -> Record:
    """So many of this and so many of that; what they are are the keys."""
    if chinese:
        names = draw.some(ZH_ITEMS, draw.number(1, 3))
        pairs = "、".join(f"{{{name}}}个{name}" for name in names)
    else:
        singular = [draw.one((*ITEMS, *ITEMS, *WORDS)) for _ in range(draw.one((1, 2, 2, 3)))]
        # But for the first, it may be one thing that has the number: "6 lamps for room 12".
        are_many = {name: place == 0 or draw.chance(0.7) for place, name in enumerate(dict.fromkeys(singular))}
        names = [f"{name}s" if many else name for name, many in are_many.items()]
        each = (f"{{{name}}} {name}" if many else f"{name} {{{name}}}" for name, many in zip(names, are_many.values()))
        pairs = draw.one(_JOINED).join(each)
    sentences = tuple(way.replace("{pairs}", pairs) for way in (_ZH_COUNTED if chinese else _COUNTED))
    return Record(sentences, dict.fromkeys(names, "integer"))


def _so(draw: Draw) -> Record:
    """Whether something is so; the sentence is worded by the value, which is put in here."""
    key, yes, no = draw.one(_SO)
    what = draw.one((("name", "{name}"), ("item", "The {item}"), ("place", "{place}"), ("shop", "The shop {shop}")))
    is_so = draw.chance(0.5)
    told = yes if is_so else no
    if draw.chance(0.3):
        thing = draw.one(("room", "house", "shop", "flat", "car", "school", "hotel"))
        parts = draw.one(("windows", "doors", "chairs", "beds", "seats", "tables"))
        sentence = f"[The|Our|This] {thing} has {{{parts}}} {parts}[, | and ][it |]{told}[.|]"
        return Record((sentence,), {parts: "integer", key: "boolean"}, {key: is_so})
    return Record((f"{what[1]} {told}[.|]",), {what[0]: "string", key: "boolean"}, {key: is_so})


def _keys(draw: Draw, keys: list[str], chinese: bool) -> str:
    """The keys, one after the other, as people list them."""
    if chinese:
        return "、".join(keys)
    keys = [f'"{key}"' for key in keys] if draw.chance(0.1) else keys
    return " and ".join((", ".join(keys[:-1]), keys[-1])) if len(keys) > 1 and draw.chance(0.5) else ", ".join(keys)


def _values(draw: Draw, record: Record, chinese: bool) -> dict[str, Any]:
    drawn = {
        name: _year_or_number(draw, name) if kind == "integer" else value_of(draw, name, kind, chinese)
        for name, kind in record.types.items()
    }
    return {**drawn, **record.known}


def _year_or_number(draw: Draw, name: str) -> int:
    return (
        draw.number(1500, 2025)
        if name == "year"
        else draw.number(2, draw.one((99, 99, 99, 2000)) if name != "age" else 99)
    )


def _invented(draw: Draw) -> Record:
    """Fields of any name, each told after its name."""
    types = some_names(draw, draw.number(2, 3))
    each, between = draw.one(_LISTED)
    return Record((between.join(each.format(name, name) for name in types),), types)


def _schema(draw: Draw, record: Record, keys: list[str]) -> dict[str, Any]:
    types = {name: {"type": record.types[name]} for name in keys}
    closed = {"additionalProperties": False} if draw.chance(0.3) else {}
    return {"type": "object", "properties": types, "required": keys, **closed}
