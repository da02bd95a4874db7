"""Several turns: what the user told is remembered a few turns later; a sum or a fact is gone on with."""

from dataclasses import dataclass

from .example import Draw, Example, Message, asked
from .greetings import greeting
from .numbers import PLUS, small_sum, spelled_word
from .tables import CITIES, ITEMS, NAMES, ZH_CITIES, ZH_ITEMS, ZH_NAMES
from .wording import loosened, worded
from .words import FACTS, fact

# How the user tells it, the assistant's word on it, what is asked later, and the answer.
_TOLD = (
    (("My name is {name}.", "I am {name}.", "I'm {name}.", "Call me {name}.", "Hi, my name is {name}.",
      "{name} is my name."),
     "Nice to meet you, {name}.",
     ("What is my name?", "Who am I?", "Do you remember my name?", "My name?", "Do you know my name?",
      "What's my name?", "Tell me my name."), "Your name is {name}."),
    (("I live in {city}.", "My home is in {city}.", "My city is {city}."), "{city} is a good place to be.",
     ("Where do I live?", "In which city do I live?", "Where is my home?", "Do you know where I live?"),
     "You live in {city}."),
    (("I bought a {item}.", "I have bought a {item}.", "I just bought a {item}."), "Enjoy your {item}.",
     ("What did I buy?", "What have I bought?", "What was it that I bought?"), "You bought a {item}."),
    (("My lucky number is {number}.", "Remember the number {number}.", "My number is {number}."),
     "I will remember {number}.",
     ("What is my lucky number?", "Which number is my lucky number?", "What was the number?", "What is my number?"),
     "Your number is {number}."),
)  # fmt: skip
_ZH_TOLD = (
    (("我叫{name}。", "我的名字是{name}。", "我是{name}。", "你好,我叫{name}。"), "很高兴认识你,{name}。",
     ("我叫什么名字?", "我是谁?", "你记得我的名字吗?", "我叫什么?"), "你叫{name}。"),
    (("我住在{city}。", "我家在{city}。"), "{city}是个好地方。", ("我住在哪里?", "我住在哪个城市?", "我家在哪里?"),
     "你住在{city}。"),
    (("我买了{item}。", "我刚买了{item}。"), "希望你喜欢{item}。", ("我买了什么?", "我刚才买了什么?"),
     "你买了{item}。"),
    (("我的幸运数字是{number}。", "记住数字{number}。"), "我会记住{number}。",
     ("我的幸运数字是多少?", "我的数字是几?", "我说的数字是多少?"), "你的数字是{number}。"),
)  # fmt: skip


@dataclass(frozen=True)
class Told:
    """Something the user tells about themselves, and what can be asked about it later."""

    said: str
    acknowledged: str
    questions: tuple[str, ...]
    answer: str


def several_turns(draw: Draw) -> Example:
    return draw.one([_remembered, _remembered, _acknowledged, _carried_on, _carried_on, _asked_of_another])(draw)


def _told(draw: Draw) -> Told:
    chinese = draw.chance(0.35)
    names, cities, items = (ZH_NAMES, ZH_CITIES, ZH_ITEMS) if chinese else (NAMES, CITIES, ITEMS)
    name = spelled_word(draw).capitalize() if not chinese and draw.chance(0.2) else draw.one(names)
    values = {"name": name, "city": draw.one(cities), "item": draw.one(items), "number": draw.number(2, 99)}
    ways, acknowledged, questions, answer = draw.one(_ZH_TOLD if chinese else _TOLD)
    return Told(worded(draw, ways, **values), acknowledged.format(**values), questions, answer.format(**values))


def _acknowledged(draw: Draw) -> Example:
    told, key = draw.until_admitted(lambda: _told(draw), lambda made: f"told {made.answer}")
    return asked("several turns", key, told.said, told.acknowledged)


def _remembered(draw: Draw) -> Example:
    def make() -> tuple[Told, list[Message]]:
        return _told(draw), [message for _ in range(draw.number(0, 2)) for message in _in_between(draw)]

    (told, between), key = draw.until_admitted(make, lambda made: f"remember {made[0].answer} {made[1]}")
    asking = {"role": "user", "content": worded(draw, told.questions)}
    messages = (*_turn(told.said, told.acknowledged), *between, asking)
    return Example("several turns", key, messages, told.answer)


def _in_between(draw: Draw) -> tuple[Message, ...]:
    other = draw.one([small_sum, fact, greeting])(draw)
    return *other.messages, {"role": "assistant", "content": other.answer}


def _turn(said: str, answered: str) -> tuple[Message, Message]:
    return {"role": "user", "content": said}, {"role": "assistant", "content": answered}


_THEN_ADD = (
    "Now add {c}.", "Add {c} to that.", "And plus {c}?", "Plus {c}?", "And {c} more?", "And {c} more", "{c} more",
    "Add {c}", "Plus {c}", "+{c}", "+ {c}", "再加{c}。", "再加{c}等于多少?", "加{c}",
)  # fmt: skip
_THEN_TAKE = (
    "Now subtract {c}.", "Take {c} away from that.", "And minus {c}?", "Minus {c}?", "And {c} less?", "And {c} less",
    "{c} less", "Subtract {c}", "Minus {c}", "-{c}", "- {c}", "再减{c}。", "再减{c}等于多少?", "减{c}",
)  # fmt: skip


def _carried_on(draw: Draw) -> Example:
    """A sum, and another on its result."""
    a, b = (draw.number(1, draw.one((9, 49))) for _ in range(2))
    plus = draw.chance(0.5)
    total = a + b

    def key_of(c: int) -> str:
        return f"{min(total, c)}+{max(total, c)}" if plus else f"{total}-{c}"

    c, key = draw.until_admitted(lambda: draw.number(1, draw.one((9, 99))), key_of)
    first = _turn(worded(draw, PLUS, a=a, b=b), str(total))
    question = worded(draw, _THEN_ADD if plus else _THEN_TAKE, c=c)
    messages = (*first, {"role": "user", "content": question})
    return Example("several turns", key, messages, str(total + c if plus else total - c))


_AND = ("And {x}?", "And {x}", "What about {x}?", "How about {x}?", "{x}?", "And of {x}?", "And for {x}?")
_ZH_AND = ("那{x}呢?", "{x}呢?", "还有{x}呢?", "那{x}?")


def _asked_of_another(draw: Draw) -> Example:
    """A fact, and the same of something else, which is all that is said."""
    phrases, pairs = draw.one(FACTS)
    phrase = draw.phrase(phrases)
    ((first, its), (other, answer)), key = draw.until_admitted(
        lambda: draw.some(pairs, 2), lambda made: f"another {made[0][0]} {made[1][0]}"
    )
    question = worded(draw, _AND if phrase.isascii() else _ZH_AND, x=other)
    messages = (*_turn(loosened(draw, phrase.format(x=first)), its), {"role": "user", "content": question})
    return Example("several turns", key, messages, answer)
