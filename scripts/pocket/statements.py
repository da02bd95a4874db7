"""Statements: told in a text and asked back, or known by heart and asked whether they are so.

What the text doesn't tell is refused, as is a question about somebody whom it doesn't name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .comparing import yes_or_no
from .counting import spelled_word
from .example import Draw, Example, Message, asked
from .grammar import expanded, mistyped, said
from .refusals import ONLY
from .tables import CAPITALS, CITIES, COLOURS, DAYS, ITEMS, MONTHS, NAMES, OPPOSITES
from .values import ANIMALS, COLOUR_NAMES, FOODS, JOBS
from .vocabulary import WORDS, made_up_word
from .wording import loosened

# What is told, and by what is asked for how it is asked; "?" asks whether it is so.
Relation = tuple[str, Mapping[str, str]]
_RELATIONS: tuple[Relation, ...] = (
    ("{n} [lives|lives now] in {city}.", {"city": "[Where|In which city|In what city] does {n} live?",
     "n": "Who lives in {city}?", "?": "Does {n} live in {city}?"}),
    ("{n} [comes|is] from {city}.", {"city": "Where [does {n} come|is {n}] from?", "n": "Who [comes|is] from {city}?"}),
    ("{n} works in a {place}.", {"place": "Where does {n} work?", "n": "Who works in [a|the] {place}?"}),
    ("{n} is a {job}[ in {city}|].", {"job": "What [is {n}'s job|does {n} do|does {n} do for a living|is {n}]?",
     "n": "Who is [a|the] {job}?", "?": "Is {n} a {job}?"}),
    ("{n} is {age}[ years old|].", {"age": "[How old is {n}|What is {n}'s age]?", "n": "Who is {age}[ years old|]?"}),
    ("{n} [likes|loves] {food}.", {"food": "[What does {n} like|What food does {n} like]?", "n": "Who likes {food}?",
     "?": "Does {n} like {food}?"}),
    ("{n}'s favourite colour is {color}.", {"color": "What is {n}'s favourite colo[u|]r?", "n": "Who likes {color}?"}),
    ("{n} has a {animal} [called|named] {n2}.", {"animal": "[What animal does {n} have|What pet does {n} have|Which "
     "animal is {n2}]?", "n2": "What is [{n}'s {animal} called|the name of {n}'s {animal}|the {animal} called]?",
     "n": "Who has a {animal}?", "?": "Does {n} have a {animal}?"}),
    ("{n}'s {relative} is [called|named] {n2}.", {"n2": "[Who is|What is the name of] {n}'s {relative}?"}),
    ("{n} {did} [a|the|her|his] {thing}[ {where}| {when}|].", {"thing": "What did {n} {do}?", "n": "Who {did} [a|the] "
     "{thing}?", "?": "Did {n} {do} [a|the] {thing}?"}),
    ("[{n} {did} the {thing} {where}|{n} {did} a {thing} {where}].", {"where": "Where did {n} {do} the {thing}?"}),
    ("[{n} {did} the {thing} {when}|{When} {n} {did} a {thing}].", {"when": "When did {n} {do} the {thing}?"}),
    ("{n} {did} {count} {thing}s[ {where}| {when}|].", {"count": "How many {thing}s did {n} {do}?",
     "thing": "What did {n} {do}?", "n": "Who {did} [the |]{thing}s?"}),
    ("{n} gave {n2} [a|the|some] {thing}.", {"thing": "What did {n} give [to |]{n2}?", "n": "Who gave {n2} [a|the] "
     "{thing}?", "n2": "[Who got the {thing}|To whom did {n} give the {thing}|Who did {n} give the {thing} to]?"}),
    ("{n} [went|travelled|flew|drove] to {city}[ {when}|].", {"city": "[Where|To which city] did {n} [go|travel]?",
     "n": "Who [went|travelled] to {city}?"}),
    ("{n} [went|goes] to {city} by {vehicle}.", {"vehicle": "How did {n} [go|travel|get] to {city}?",
     "city": "Where did {n} go?"}),
    ("{n} is [married to|the {relative} of] {n2}.", {"n2": "Whose {relative} is {n}?"}),
    ("[The|A] {thing} [is|lies|stands|was] {where}.", {"where": "Where [is|was] the {thing}?",
     "thing": "What [is|lies|was] {where}?"}),
    ("The {thing} [is|was] {color}.", {"color": "[What colo[u|]r|Which colo[u|]r] [is|was] the {thing}?",
     "?": "[Is|Was] the {thing} {color}?"}),
    ("The {color} {thing} [is|was] {where}.", {"color": "What colo[u|]r [is|was] the {thing}?",
     "where": "Where [is|was] the [{color} |]{thing}?"}),
    ("The {thing} [costs|cost] {price} [euros|dollars].", {"price": "[How much [does|did] the {thing} cost|What is the "
     "price of the {thing}]?", "?": "[Does|Did] the {thing} cost {price} [euros|dollars]?"}),
    ("The {event} [starts|begins|is] at {time}.", {"time": "[When|What time|At what time] does the {event} "
     "[start|begin]?", "?": "Does the {event} start at {time}?"}),
    ("The {event} [is|will be|was] on {day}[ at {time}|].", {"day": "[When is|On which day is|What day is] the "
     "{event}?", "?": "Is the {event} on {day}?"}),
    ("The {event} [is|takes place] in {city}.", {"city": "[Where is|In which city is|Where does] the {event}[ take "
     "place|]?"}),
    ("The {event} [took|takes] {count} [hours|minutes|days].", {"count": "How long did the {event} take?"}),
    ("The {thing} belongs to {n}.", {"n": "[Whose {thing} is it|Who owns the {thing}|To whom does the {thing} "
     "belong]?"}),
    ("There [are|were] {count} {thing}s {where}.", {"count": "How many {thing}s [are|were] [there|{where}]?",
     "where": "Where [are|were] the {thing}s?", "thing": "What [is|was] {where}?"}),
    ("The {owner}'s [code|number|password] is {code}.", {"code": "What is the {owner}'s [code|number|password]?"}),
    *((f"{{n}} is {more} than {{n2}}.", {"n": f"Who is {more}?", "n2": f"Who is {less}?"}) for more, less in (
        ("taller", "shorter"), ("older", "younger"), ("faster", "slower"), ("stronger", "weaker"),
        ("richer", "poorer"), ("heavier", "lighter"))),
)  # fmt: skip
_DEEDS = (
    ("buy", "bought"), ("find", "found"), ("see", "saw"), ("sell", "sold"), ("lose", "lost"), ("make", "made"),
    ("bring", "brought"), ("wash", "washed"), ("paint", "painted"), ("hide", "hid"), ("break", "broke"),
    ("eat", "ate"), ("draw", "drew"), ("pick", "picked"), ("order", "ordered"), ("steal", "stole"),
)  # fmt: skip
_WHERE = (
    "in the kitchen", "in the garage", "on the table", "under the bed", "on the shelf", "behind the door", "at home",
    "in the garden", "next to the lamp", "at school", "in the park", "under the tree", "in the attic", "on the roof",
    "in the basement", "by the river", "at the station", "in a small shop", "near the church", "in the hall",
)  # fmt: skip
_WHEN = ("yesterday", "last week", "on {day}", "in {month}", "this morning", "in the evening", "in {year}", "at noon")
_RELATIVES = ("mother", "brother", "sister", "wife", "husband", "boss", "friend", "teacher", "son", "daughter", "dog")
_PLACES = ("bank", "school", "hospital", "bakery", "hotel", "museum", "factory", "library", "farm", "shop", "zoo")
_EVENTS = ("meeting", "party", "concert", "lesson", "film", "game", "wedding", "exam", "course", "trip", "show", "race")
_OWNERS = ("house", "locker", "safe", "garage", "room", "phone", "office", "gate", "school", "car")
_PUT = (
    "{text} {question}", "{text} {question}", "{text}\n{question}", "{text}\n\n{question}", "{question} {text}",
    "[Text|Passage|Story|Context|Read this|Here is a text|Facts]: {text}[\n| ][Question|Q]: {question}",
    "[Read|Read this|Listen|Text|Context|Story][:|.] {text}[ |\n]{question}",
    "{question}\n[Text|Passage|Context|Information]: {text}",
    "[According to|Based on|From|In] [this text|the text|this story|the following]: {text} {question}",
    "\"{text}\" {question}", "{text} [Question|Now|So|Tell me]: {question}",
    "[Answer|Answer the question] [from|with|using] the text[.|:] {text}[ |\n]{question}",
)  # fmt: skip


def reading(draw: Draw) -> Example:
    """One to three statements, and a question about one of them, or about what none of them tells."""
    told = draw.some(_RELATIONS, draw.one((1, 1, 2, 2, 3)) + 1)
    values = [_values(draw) for _ in told]
    statements = [_filled(draw, relation[0], each) for relation, each in zip(told, values)][1:]
    is_told = draw.chance(0.7)
    place = draw.number(1, len(told) - 1)
    slot = draw.one(list(told[place][1])) if is_told else draw.one([*told[0][1], *told[place][1]])
    asked_of = place if is_told or slot not in told[0][1] else 0
    question, answer = _question(draw, told[asked_of], slot, values[asked_of])
    if not is_told:
        question = _unanswered(draw, told, slot, asked_of, values)
        answer = ONLY
    key = f"read {statements} {question}"
    return _told_before(draw, key, " ".join(statements), question, answer) if draw.admits(key) else reading(draw)


def _question(draw: Draw, relation: Relation, slot: str, values: Mapping[str, str]) -> tuple[str, str]:
    if slot != "?":
        return _filled(draw, relation[1][slot], values), values[slot]
    is_so = draw.chance(0.5)
    # Somebody or something is right, and what is said of it may be another.
    free = [name for name in ("city", "job", "food", "animal", "thing", "color", "price", "time", "day")
            if f"{{{name}}}" in relation[1]["?"]]  # fmt: skip
    name = free[0] if len(free) < 2 or "n" in relation[1] else free[1]
    other = _values(draw)[name]
    while other == values[name]:
        other = _values(draw)[name]
    question = _filled(draw, relation[1]["?"], values if is_so else {**values, name: other})
    return question, yes_or_no(question, is_so)


def _unanswered(
    draw: Draw, told: Sequence[Relation], slot: str, asked_of: int, values: Sequence[Mapping[str, str]]
) -> str:
    """What nothing tells: another relation of somebody who is named, or one that is told of somebody else."""
    someone = values[draw.number(1, len(told) - 1)]
    mixed = _values(draw) | ({"n": someone["n"], "thing": someone["thing"]} if asked_of == 0 else {})
    return _filled(draw, told[asked_of][1][slot], mixed)


def _filled(draw: Draw, grammar: str, values: Mapping[str, str]) -> str:
    return expanded(draw, grammar).format(**values)


def _values(draw: Draw) -> dict[str, str]:
    n, n2 = (draw.one(NAMES) if draw.chance(0.75) else made_up_word(draw).capitalize() for _ in range(2))
    do, did = draw.one(_DEEDS)
    when = draw.one(_WHEN).format(day=draw.one(DAYS), month=draw.one(MONTHS), year=draw.number(1900, 2030))
    return {
        "n": n, "n2": n2, "do": do, "did": did, "when": when, "When": when[0].upper() + when[1:],
        "thing": draw.one((*ITEMS, *WORDS)) if draw.chance(0.85) else spelled_word(draw), "where": draw.one(_WHERE),
        "city": draw.one(CITIES), "job": draw.one(JOBS), "food": draw.one(FOODS), "animal": draw.one(ANIMALS),
        "color": draw.one(COLOUR_NAMES), "relative": draw.one(_RELATIVES), "place": draw.one(_PLACES),
        "event": draw.one(_EVENTS), "owner": draw.one(_OWNERS), "day": draw.one(DAYS),
        "age": str(draw.number(3, 99)), "count": str(draw.number(2, draw.one((12, 99)))),
        "price": str(draw.number(2, 200)), "code": str(draw.number(100, 9999)),
        "time": f"{draw.number(1, 12)}{draw.one((':30', ':15', '', ' pm', ' am', ':45'))}",
        "vehicle": draw.one(("train", "bus", "car", "plane", "boat", "bike", "taxi")),
    }  # fmt: skip


def _told_before(draw: Draw, key: str, text: str, question: str, answer: str) -> Example:
    """In one message, or the text in an earlier turn, or in the system's."""
    question = loosened(draw, mistyped(draw, question))
    form = draw.number(0, 9)
    if form == 0:
        return replace(asked("reading", key, question, answer), system=text)
    if form < 3:
        heard = draw.one(("Ok.", "Okay!", "Got it.", "I see.", "Noted.", "Thank you.", ONLY))
        messages: tuple[Message, ...] = (
            {"role": "user", "content": text},
            {"role": "assistant", "content": heard},
            {"role": "user", "content": question},
        )
        return Example("reading", key, messages, answer)
    put = expanded(draw, draw.one(_PUT)).format(text=text, question=question)
    return asked("reading", key, put, answer)


# --- known by heart --------------------------------------------------------------------------------------------------

_COUNTS = (
    ("days", "a week", 7), ("months", "a year", 12), ("hours", "a day", 24), ("minutes", "an hour", 60),
    ("seconds", "a minute", 60), ("legs", "a spider", 8), ("legs", "a dog", 4), ("legs", "a cat", 4),
    ("wheels", "a car", 4), ("wheels", "a bicycle", 2), ("sides", "a triangle", 3), ("sides", "a square", 4),
    ("letters", "the alphabet", 26), ("days", "a year", 365), ("seasons", "a year", 4), ("legs", "an insect", 6),
)  # fmt: skip
_IS_CAPITAL = ("Is {y} the capital[ city|] of {x}?", "Is the capital of {x} {y}?", "{y} is the capital of {x}",
               "Is {y} {x}'s capital?")  # fmt: skip
_IS_OPPOSITE = ("Is {y} the opposite of {x}?", "Is the opposite of {x} {y}?", "{y} is the opposite of {x}",
                "Are {x} and {y} opposites?")  # fmt: skip
_IS_COLOURED = ("Is {x} {y}?", "Is the colo[u|]r of {x} {y}?", "{x} is {y}")
_COMES_AFTER = ("Does {y} come [right |]after {x}?", "Is {y} the [day |month |]after {x}?", "{y} comes after {x}")
_HAS_MANY = ("Does {x} have {y} {z}?", "Are there {y} {z} in {x}?", "{x} has {y} {z}", "Has {x} {y} {z}?")
_IS_SUM = ("Is {x} [equal to |]{y}?", "Does {x} equal {y}?", "{x} is {y}", "{x} = {y}", "Does {x} make {y}?")
_ASKED_WHETHER = ("[Yes or no|True or false|Right or wrong]: {}", "{}[, right|, true or false|, yes or no|, correct]?",
                  "Is it true that {}?", "Is that right: {}?", "{}. [True or false|Is that true|Right]?")  # fmt: skip


def whether(draw: Draw) -> Example:
    ways, x, y, z, is_so = _claim(draw)
    way = expanded(draw, draw.one(ways))
    if not way.endswith("?"):
        way = expanded(draw, draw.one(_ASKED_WHETHER)).replace("{}", way)
    elif draw.chance(0.15):
        way = draw.one(("Yes or no: ", "Answer yes or no: ", "Tell me: ")) + way
    question = said(draw, (way[0].upper() + way[1:],), x=x, y=y, z=z)
    key = f"whether {x} {y}"
    return asked("yes or no", key, question, yes_or_no("", is_so)) if draw.admits(key) else whether(draw)


def _claim(draw: Draw) -> tuple[Sequence[str], str, str, str, bool]:
    """Ways to say it, of what, what, of what kind, and whether it is so."""
    is_so, form = draw.chance(0.5), draw.number(0, 5)
    if form == 0:
        a, b, wrong = draw.number(1, 50), draw.number(1, 50), draw.one((-10, -2, -1, 1, 2, 10))
        sign = draw.one((" + ", "+", " plus "))
        return _IS_SUM, f"{a}{sign}{b}", str(a + b + (0 if is_so else wrong)), "", is_so
    if form == 1:
        kind, what, count = draw.one(_COUNTS)
        others = [other for other in (count - 1, count + 1, count + 2, 10, 3) if other not in (count, 0)]
        return _HAS_MANY, what, str(count if is_so else draw.one(others)), kind, is_so
    ways, pairs = (
        (_IS_CAPITAL, CAPITALS[:80]), (_IS_OPPOSITE, OPPOSITES), (_IS_COLOURED, [row[:2] for row in COLOURS]),
        (_COMES_AFTER, [*zip(DAYS, (*DAYS[1:], DAYS[0])), *zip(MONTHS, (*MONTHS[1:], MONTHS[0]))]),
    )[form - 2]  # fmt: skip
    x, y = draw.one(pairs)
    other = draw.one([other for _, other in pairs if other != y and (other in MONTHS) == (y in MONTHS)])
    return ways, x, y if is_so else other, "", is_so
