"""Several turns: what the user told is remembered a few turns later; a sum or a fact is gone on with."""

from dataclasses import dataclass

from ..example import Draw, Example, Message, one_turn
from ..grammar import expanded, phrased
from ..tables.lists import CITIES, ITEMS, NAMES, ZH_CITIES, ZH_ITEMS, ZH_NAMES
from ..tables.values import COLOUR_NAMES, FOODS, JOBS
from ..tables.vocabulary import chinese_word, spelled_word
from ..wording import loosened
from .facts import FACTS, Pairs, fact, phrase_key
from .greetings import greeting
from .sums import PLUS, plain_small_sum

# How the user tells it, the assistant's word on it, what is asked later, and the answer.
_HI = "[Hi, |Hello, |Hey, |Hello! |Hi! |]"
_TOLD = (
    ((f"{_HI}[my name is|I am|I'm|I'm called|they call me|this is|my name's] {{name}}[.|!|]",
    "[Call me|You can call me|Please call me] {name}[.|]", "{name} is my name[.|]",
    "[Remember|Note|Keep in mind|Don't forget][ that|:|] my name is {name}[.|]", "[The name's|Name:|My name:] {name}"),
     "Nice to meet you, {name}.",
     ("[What is|What's|Say|Tell me|Repeat] my name[?|]", "Who am I?",
     "[Do|Can] you [remember|recall|know|tell me|say] [my name|what my name is|who I am]?", "My name?",
     "What did I say my name [is|was]?", "What am I called?", "What was my name[ again|]?",
     "[How|What] do [you|people] call me?", "And my name?"), "Your name is {name}."),
    (("[I live|I am living|I'm living|I have lived|I reside] in {city}[.|]", "My [home|house|flat] is in {city}[.|]",
    "My city is {city}[.|]", "[I am|I'm|I come] from {city}[.|]", "I moved to {city}[ last year|][.|]",
    "[Remember|Note][ that|] I live in {city}[.|]"), "{city} is a good place to be.",
     ("Where do I live?", "[In which|In what|Which|What] city do I live[ in|]?", "Where is my home?",
     "Do you [know|remember] where I live?", "[Where am I from|Where do I come from]?", "Which city am I [from|in]?",
     "[What is|What's] my [city|home town]?", "Where did I say I live?", "Tell me where I live[.|]"),
     "You live in {city}."),
    (("[I bought|I have bought|I just bought|I've bought|Today I bought|I got myself|Yesterday I bought|I purchased] "
    "[a|one|a new] {item}[.|]",), "Enjoy your {item}.",
     ("What did I [buy|get|purchase]?", "What have I bought?", "What was it that I bought?", "Which thing did I buy?",
     "[Do you remember|Can you tell me|Do you know] what I bought?", "What did I buy [today|just now]?",
     "What did I say I bought?"), "You bought a {item}."),
    (("My [lucky number|number|favorite number|favourite number|code|room number|secret number] is {number}[.|]",
    "[Remember|Keep in mind|Memorize|Note] [the number|the code|this number:|my number,|] {number}[.|]",
    "The [secret number|number|code|password] is {number}[.|]"),
     "I will remember {number}.",
     ("[What is|What's|What was|Tell me|Say|Which is] [my|the] [lucky number|number|favorite number|favourite number|"
     "secret number|code][?|]", "Which number is my [lucky|favorite] number?",
     "[Which|What] number did I [say|tell you|give you|mention]?", "Do you remember [my|the] number?",
     "[Which|What] number should you remember?", "My number?"),
     "Your number is {number}."),
    (("[I am|I'm] {age} years old[.|]", "My age is {age}[.|]", "[I turned|I am turning|I just turned] {age}[.|]",
    "[I am|I'm] {age}[.|]"), "{age} is a good age.", ("How old am I?", "[What is|What's|Tell me] my age[?|]",
    "[Do you remember|Do you know] [how old I am|my age]?", "How old did I say I [am|was]?", "My age?"),
    "You are {age} years old."),
    (("My favo[u|]rite colo[u|]r is {colour}[.|]", "I [like|love] the colo[u|]r {colour}[ best| most|][.|]",
    "{colour} is my favo[u|]rite colo[u|]r[.|]"), "{colour} is a nice colour.", (
    "[What is|What's|Tell me|Which is] my favo[u|]rite colo[u|]r[?|]",
    "[Which|What] colo[u|]r do I [like|love|like best]?", "[Do you remember|Do you know] my favo[u|]rite colo[u|]r?"),
    "Your favourite colour is {colour}."),
    (("I have a [dog|cat|pet|parrot|hamster|horse] [called|named] {name}[.|]",
    "My [dog|cat|pet|hamster|parrot|horse] is [called|named] {name}[.|]",
    "My [dog|cat|pet|hamster|horse]'s name is {name}[.|]"), "{name} is a nice name.", (
    "[What is|What's] my [dog|cat|pet|hamster|horse]'s name?",
    "[What is|How is] my [dog|cat|pet|hamster|horse] called?",
    "[What is|Tell me|Do you remember] the name of my [pet|dog|cat|horse][?|]", "What did I call my [pet|dog|cat]?"),
    "The name is {name}."),
    (("I work [in|at|for] a {place}[.|]", "My [work|job|workplace] is [in|at] a {place}[.|]",
      "I have a job [in|at] a {place}[.|]"), "I will remember that.",
     ("Where do I [work|have a job|earn my money]?", "Where is my [job|work|workplace]?", "What [is|was] my workplace?",
      "[In|At] what kind of place do I work?", "Do you [remember|know] where I work?"), "You work at a {place}."),
    (("[Remember|Keep in mind|Memorize|Note|Learn|Save] [the|this|my] [word|secret word|magic word|password][:|] "
      "{value}[.|]", "[The|My|Your] [word|magic word|secret word|password] is {value}[.|]"), "I will remember that.",
     ("[What|Which] [is|was] the [word|magic word|secret word|password]?", "[Which|What] word [should|must] you "
      "[remember|keep]?", "[Which|What] word did I [tell|give|teach] you?", "[Tell me|Say|Repeat] the [word|password]"
      "[ now| please|][.|]", "The word?", "Do you [still |]know the [word|password]?"), "It is {value}."),
    (("I work as a {job}[.|]", "I [am|am working as] a {job}[.|]", "My job is {job}[.|]", "I'm a {job}[.|]"),
    "{job} is a good job.", ("What is my [job|profession|work]?", "What do I do[ for a living| for work|]?",
    "What do I work as?", "[Do you remember|Do you know] my [job|profession]?"), "Your job is {job}."),
    (("I [like|love|enjoy] [to eat |eating |]{food}[.|]", "My favo[u|]rite food is {food}[.|]",
    "I like {food} [most|best][.|]"), "{food} is tasty.", ("What do I like[ to eat|]?",
    "[What is|What's] my favo[u|]rite food?", "[Which|What] food do I [like|love]?",
    "[Do you remember|Do you know] what I like[ to eat|]?"), "You like {food}."),
    (("[I|Yesterday I|Today I|This morning I] {did} [my|the|a] {item}[.|]",), "I will remember that.",
     ("What did I {do}?", "[Do you remember|Do you know|Can you tell me] what I {did}?", "What was it that I {did}?",
      "[Which thing|What thing] did I {do}?", "What have I {done}?"), "It was the {item}."),
    (("[My|The] {item} [is|lies|is lying|stays] {where}[.|]", "I [put|left|keep] [my|the] {item} {where}[.|]",
      "[Remember|Note]: [my|the] {item} is {where}[.|]", "My {item}s are {where}[.|]"), "I will remember that.",
     ("Where is [my|the] {item}?", "Where [did I put|did I leave|do I keep] [my|the] {item}?",
      "[Do you remember|Do you know|Tell me] where [my|the] {item} is[?|]", "Where are my {item}s?", "My {item}?",
      "[I can't find|I am looking for] my {item}[.|]"), "It is {where}."),
    (("I [meet|visit|will see|am meeting|am going to see] [my friend |]{name} in {city}[.|]",
      "[My|Our] [friend|meeting|party|holiday|trip] [with {name} |]is in {city}[.|]"), "Have a good time in {city}.",
     ("In [which|what] city [is that|do I meet them|is it|will that be]?", "Where do I [meet|see|visit] them?",
      "Where [is that|will that be|is it]?", "Which city [did I say|was it|do I go to]?"), "In {city}."),
)  # fmt: skip
_DEEDS = (
    ("lose", "lost", "lost"), ("find", "found", "found"), ("sell", "sold", "sold"), ("break", "broke", "broken"),
    ("forget", "forgot", "forgotten"), ("repair", "repaired", "repaired"), ("see", "saw", "seen"),
    ("clean", "cleaned", "cleaned"), ("paint", "painted", "painted"), ("wash", "washed", "washed"),
    ("get", "got", "got"), ("order", "ordered", "ordered"), ("eat", "ate", "eaten"), ("need", "needed", "needed"),
)  # fmt: skip
_WHERE = (
    "in the kitchen", "in the garage", "on the table", "under the bed", "in the car", "on the shelf", "in my bag",
    "behind the door", "in the drawer", "at home", "in the garden", "on the roof", "next to the lamp", "in the box",
    "at school", "in the office", "under the chair", "on the desk", "in the bathroom", "in my pocket",
)  # fmt: skip
_ZH_WHERE = (
    "厨房里", "桌子上", "床下", "车里", "包里", "门后", "抽屉里", "家里", "花园里", "盒子里", "椅子上", "办公室里",
)  # fmt: skip
_WORKPLACES = (
    "bank", "school", "hospital", "bakery", "garage", "hotel", "museum", "factory", "library", "farm", "restaurant",
    "shop", "post office", "zoo", "theater", "kitchen", "university", "station", "port", "cinema", "laboratory",
)  # fmt: skip
# Whatever one calls one's own.
_OWN = (
    "car", "hobby", "sister", "brother", "teacher", "boss", "favorite animal", "favorite drink", "favorite movie",
    "street", "favorite season", "school", "best friend", "wife", "husband", "daughter", "son", "bike",
    "favorite fruit", "neighbor", "team", "password", "favorite word", "room", "gate", "seat", "locker", "train",
    "flight", "bus", "wifi password", "phone code", "pin", "gate code", "user name", "street number", "mother",
    "father", "uncle", "aunt", "coach", "landlord", "colleague", "class", "favorite book", "favorite singer",
    "favorite game", "horse", "boat", "favorite sport", "instrument", "favorite city", "doctor", "dentist", "plant",
)  # fmt: skip
_OF_OWN = (
    ("My {own}['s name|] is [called |named |]{value}[.|]", "The name of my {own} is {value}[.|]",
     "[Remember|Note|Keep in mind][:| that] my {own} is {value}[.|]", "{value} is my {own}[.|]"),
    "I will remember that.",
    ("[What is|What's|Who is|Tell me|Which is] my {own}[?|]", "[Do you|Can you] [remember|recall|know] my {own}?",
     "What did I say my {own} [is|was]?", "What was my {own}[ again|]?", "My {own}?",
     "What is [the name of my {own}|my {own}'s name|my {own} called]?", "[How|What] is my {own} called?",
     "What's my {own}'s name?", "What was the {own}[ again|]?", "And what is my {own}?"),
    "It is {value}.",
)  # fmt: skip
_ZH_TOLD = (
    (("我[叫|的名字是|的名字叫|是]{name}[。|]", "你好,我[叫|是]{name}。", "[记住|请记住],我叫{name}。"),
    "很高兴认识你,{name}。",
     ("我[叫什么名字|叫什么|是谁|的名字是什么]?", "你[记得|知道|还记得]我[的名字|叫什么|是谁]吗?", "我刚才说我叫什么?"),
     "你叫{name}。"),
    (("我[住在|家在|来自|现在住在]{city}[。|]",), "{city}是个好地方。", ("我住在[哪里|哪个城市|哪儿]?",
    "我家在[哪里|哪儿]?", "你[知道|记得]我住在哪里吗?", "我来自哪里?"),
     "你住在{city}。"),
    (("我[买了|刚买了|今天买了|昨天买了][一个|]{item}[。|]",), "希望你喜欢{item}。", ("我[刚才|今天|]买了什么?",
    "你[记得|知道]我买了什么吗?"),
     "你买了{item}。"),
    (("我的[幸运数字|数字|号码|密码]是{number}[。|]", "[请|]记住[数字|]{number}[。|]"), "我会记住{number}。",
     ("我的[幸运数字|数字|号码|密码]是[多少|几|什么]?", "我[说的|刚才说的]数字是多少?",
     "[我让你记住的数字是多少|数字是多少]?", "[那个|我告诉你的|我给你的|要你记的]数字[是多少|是几|呢]?"),
     "你的数字是{number}。"),
    (("我今年{age}岁[。|]", "我{age}岁[了|]。"), "{age}岁是个好年纪。", ("我[今年|]多大[了|]?", "我几岁[了|]?",
    "你记得我多大吗?"), "你{age}岁。"),
    (("我的{item}在{where}[。|]", "我把{item}放在{where}[。|]", "[记住|请记住],{item}在{where}[。|]"),
    "好的,我记住了。",
     ("[我的|]{item}在[哪里|哪儿]?", "我的{item}呢?", "我把{item}放在[哪里|哪儿]了?", "你[记得|知道]{item}在哪里吗?"),
     "在{where}。"),
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
    made = chinese_word(draw) if chinese else spelled_word(draw).capitalize()
    name, city = (made if draw.chance(0.25) else draw.one(pool) for pool in (names, cities))
    values = {
        "name": name, "city": city, "item": draw.one(items), "number": draw.number(2, draw.one((99, 99,
        9999))),
        "age": draw.number(5, 99), "colour": draw.one(COLOUR_NAMES), "job": draw.one(JOBS), "food": draw.one(FOODS),
    }  # fmt: skip
    values |= {"own": draw.one(_OWN), "value": _own_value(draw), "place": draw.one(_WORKPLACES)}
    values |= dict(zip(("do", "did", "done"), draw.one(_DEEDS), strict=True))
    values["where"] = draw.one(_ZH_WHERE if chinese else _WHERE)
    ways, acknowledged, questions, answer = draw.one(_ZH_TOLD if chinese else (*_TOLD, _OF_OWN, _OF_OWN, _OF_OWN))
    for name in ("own", "item", "do", "did", "done"):
        questions = tuple(question.replace(f"{{{name}}}", str(values[name])) for question in questions)
    return Told(phrased(draw, ways, **values), acknowledged.format(**values), questions, answer.format(**values))


def _own_value(draw: Draw) -> str:
    form = draw.number(0, 9)
    if form < 3:
        return spelled_word(draw)
    if form < 6:
        return draw.one(NAMES)
    if form < 8:
        return str(draw.number(2, draw.one((99, 999, 9999, 99999))))
    name = draw.one((draw.one(NAMES), spelled_word(draw).capitalize()))
    return f"{draw.one(('Mr', 'Mrs', 'Ms', 'Dr', 'Miss', 'Mr.', 'Mrs.', 'Dr.'))} {name}"


def _acknowledged(draw: Draw) -> Example:
    told, key = draw.until_admitted(lambda: _told(draw), lambda made: f"told {made.answer}")
    return one_turn("several turns", key, told.said, told.acknowledged)


def _remembered(draw: Draw) -> Example:
    def make() -> tuple[Told, list[Message]]:
        return _told(draw), [message for _ in range(draw.number(0, 2)) for message in _in_between(draw)]

    (told, between), key = draw.until_admitted(make, lambda made: f"remember {made[0].answer} {made[1]}")
    asking = {"role": "user", "content": phrased(draw, told.questions)}
    telling = _turn(told.said, told.acknowledged if draw.chance(0.4) else draw.one(_HEARD))
    if draw.chance(0.3) and not between and (other := _told(draw)).questions[0][:6] != told.questions[0][:6]:
        both = [*telling, *_turn(other.said, draw.one((other.acknowledged, *_HEARD)))]
        telling = (*both[2:], *both[:2]) if draw.chance(0.5) else tuple(both)
    return Example("several turns", key, (*telling, *between, asking), told.answer)


# What another assistant may have said to it: the answer is to be found in what the user said.
_HEARD = (
    "Ok.", "Okay!", "Got it.", "I will remember that.", "Nice!", "Nice to meet you!", "Thanks for telling me.",
    "Great.", "All right.", "Noted.", "I see.", "Good to know!", "Sure, I'll remember.", "Hello! How can I help you?",
    "Understood.", "That is nice.", "OK, I'll keep that in mind.", "Cool!", "好的。", "知道了。", "我记住了。",
)  # fmt: skip


def _in_between(draw: Draw) -> tuple[Message, ...]:
    other = draw.one([plain_small_sum, fact, greeting])(draw)
    return *other.messages, {"role": "assistant", "content": other.answer}


def _turn(said: str, answered: str) -> tuple[Message, Message]:
    return {"role": "user", "content": said}, {"role": "assistant", "content": answered}


_THEN_ADD = (
    "[Now|And now|Then|] add {c}[ to that| to it| more|][.|]", "[And|] plus {c}[?|]", "[And|] {c} more[?|]",
    "+[ |]{c}", "And if you add {c}[ to that|]?",
    "[What is that|What's that|That|And that|The result|It] plus {c}[?|]", "Increase [it|that] by {c}[.|]",
    "[再|然后|]加[上|]{c}[。|]", "再加{c}等于多少?",
)  # fmt: skip
_THEN_TAKE = (
    "[Now|And now|Then|] subtract {c}[ from that| from it|][.|]", "[And|] minus {c}[?|]", "[And|] {c} less[?|]",
    "-[ |]{c}", "[Now|And now|] take [away |]{c}[ away| from that| away from that|][.|]",
    "And if you [subtract|take away] {c}[ from that|]?",
    "[What is that|What's that|That|And that|The result|It] minus {c}[?|]", "Decrease [it|that] by {c}[.|]",
    "[再|然后|]减[去|]{c}[。|]", "再减{c}等于多少?",
)  # fmt: skip


_TOTALS = (
    "{total}", "{total}", "{total}", "{total}.", "{a} + {b} = {total}", "The answer is {total}.", "It is {total}.",
)  # fmt: skip
_THINGS = ("{its}", "{its}", "{its}", "{its}.", "It is {its}.", "The answer is {its}.")


def _carried_on(draw: Draw) -> Example:
    """A sum, and another on its result."""
    a, b = (draw.number(1, draw.one((9, 49))) for _ in range(2))
    plus = draw.chance(0.5)
    total = a + b

    def key_of(c: int) -> str:
        return f"{min(total, c)}+{max(total, c)}" if plus else f"{total}-{c}"

    c, key = draw.until_admitted(lambda: draw.number(1, draw.one((9, 99))), key_of)
    first = _turn(phrased(draw, PLUS, a=a, b=b), draw.one(_TOTALS).format(a=a, b=b, total=total))
    question = phrased(draw, _THEN_ADD if plus else _THEN_TAKE, c=c)
    messages = (*first, {"role": "user", "content": question})
    return Example("several turns", key, messages, str(total + c if plus else total - c))


_AND = (
    "And [of |for |that of |]{x}?", "And {x}", "[And what|What|How] about {x}?", "{x}?",
    "And [what is it for|the one of] {x}?", "Same for {x}[?|]", "Now {x}[.|]", "Ok, and {x}?", "{x}",
)  # fmt: skip
_ZH_AND = ("那{x}呢?", "{x}呢?", "还有{x}呢?", "那{x}?", "{x}?")
# Kinds of facts that can be gone on with: those that are asked of one thing.
_OF_ONE = [
    (phrases, pairs, weight) for phrases, pairs, weight in FACTS if not any("{y}" in phrase for phrase in phrases)
]


def _asked_of_another(draw: Draw) -> Example:
    """A fact, and the same of something else, which is all that is said."""

    def make() -> tuple[str, Pairs]:
        phrases, pairs, _ = draw.random.choices(_OF_ONE, [weight for *_, weight in _OF_ONE])[0]
        return expanded(draw, draw.one(phrases)), pairs

    (phrase, pairs), _ = draw.until_admitted(make, lambda made: phrase_key(made[0]))
    ((first, its), (other, answer)), key = draw.until_admitted(
        lambda: draw.some(pairs, 2), lambda made: f"another {made[0][0]} {made[1][0]}"
    )
    question = phrased(draw, _AND if phrase.isascii() else _ZH_AND, x=other)
    messages = (
        *_turn(loosened(draw, phrase.format(x=first)), draw.one(_THINGS).format(its=its)),
        {"role": "user", "content": question},
    )
    return Example("several turns", key, messages, answer)
