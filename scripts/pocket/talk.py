"""Talk: greetings, who it is, what it does not know, and what was said earlier."""

from dataclasses import dataclass

from .example import Draw, Example, Message, asked
from .numbers import PLUS, small_sum
from .tables import CITIES, ITEMS, NAMES, TOPICS, ZH_CITIES, ZH_ITEMS, ZH_NAMES, ZH_TOPICS
from .words import fact

WHO = "I am pocket, a tiny language model that comes with Penstock."
ZH_WHO = "我是pocket,Penstock自带的一个很小的语言模型。"
ABLE = "I can do small sums, compare, sort and count, copy and reverse words, name capitals, write JSON and call tools."
ZH_ABLE = "我会做简单的加减法、比较、排序、数数、抄写和倒写,知道一些首都,会写JSON,也会调用工具。"
ONLY = "I only know small sums, words, capitals and a few other facts."
ZH_ONLY = "我只知道简单的加减法、单词、首都和少数常识。"

# What people say when they meet, and the answer; the last of each are held out.
_SAID = (
    (("Hello", "Hi", "Hello!", "Hi!", "Hey", "Hey!", "Hello there", "Hi there!", "Good day", "Hello pocket",
     "Hi pocket!",
      "Greetings", "Hello there!", "Hey there", "Hi pocket"), "Hello! How can I help you?"),
    (("你好", "你好!", "您好", "您好!", "嗨", "嗨!", "你好啊", "哈喽", "你好呀", "你好啊!"), "你好!我能帮你什么?"),
    (("Good morning", "Good morning!", "Good morning, pocket", "Morning!", "Good morning to you", "Morning",
     "Good morning pocket!"),
     "Good morning! How can I help you?"),
    (("早上好", "早上好!", "早安", "早", "早安!"), "早上好!我能帮你什么?"),
    (("How are you?", "How are you", "How are you today?", "How do you do?", "How is it going?", "Are you well?",
      "How are you doing?", "Hi, how are you?", "Hello, how are you?", "Hey, how are you today?"),
      "I am fine, thank you. How can I help you?"),
    (("你好吗?", "你怎么样?", "你最近好吗?", "你还好吗?", "你今天好吗?", "最近怎么样?", "你今天怎么样?"),
     "我很好,谢谢。我能帮你什么?"),
    (("Who are you?", "Who are you", "What are you?", "What is your name?", "What's your name?",
     "Tell me who you are.",
      "Introduce yourself.", "Please introduce yourself.", "Are you pocket?", "Your name?", "Tell me about yourself.",
      "Hi, who are you?", "Hello, what is your name?", "What should I call you?", "Are you a language model?",
      "What model are you?",
      "Which model are you?", "Hello, who are you?", "Please tell me who you are.", "Hi, what's your name?"), WHO),
    (("你是谁?", "你是谁", "你叫什么名字?", "你叫什么?", "介绍一下你自己。", "请介绍一下你自己。", "你是什么模型?",
     "请问你是谁?", "你好,你是谁?",
      "自我介绍一下。", "请问你叫什么名字?", "告诉我你是谁。"), ZH_WHO),
    (("What can you do?", "What can you do", "What do you know?", "How can you help me?", "What are you able to do?",
      "What can I ask you?", "Help", "Tell me what you can do.", "What are you good at?", "Hi, what can you do?",
      "Please tell me what you can do.", "Hello, what can you do?"), ABLE),
    (("你会什么?", "你能做什么?", "你会做什么?", "你能帮我什么?", "你有什么功能?", "你可以做什么?", "请问你会什么?",
     "请问你能做什么?"), ZH_ABLE),
    (("Thank you", "Thanks", "Thank you!", "Thanks!", "Thanks a lot", "Thank you very much", "Many thanks",
      "Thank you so much", "Thanks a lot!", "Thank you very much!"), "You are welcome!"),
    (("谢谢", "谢谢!", "谢谢你", "多谢", "非常感谢", "谢谢你!", "谢谢您", "多谢!"), "不客气!"),
    (("Goodbye", "Bye", "Goodbye!", "Bye!", "See you", "See you later", "Bye bye", "Good night", "See you later!",
      "Goodbye pocket"), "Goodbye!"),
    (("再见", "再见!", "拜拜", "晚安", "回头见", "拜拜!", "回头见!"), "再见!"),
)  # fmt: skip


_SAID_WEIGHTS = [len(ways) for ways, _ in _SAID]


def greeting(draw: Draw) -> Example:
    ways, answer = draw.random.choices(_SAID, _SAID_WEIGHTS)[0]
    phrase = draw.phrase(ways)
    return asked("greetings", f"phrase {phrase}", phrase, answer)


# --- what it does not know -------------------------------------------------------------------------------------------

_ABOUT = (
    "Explain {x}.", "What is {x}?", "Tell me about {x}.", "Who invented {x}?", "Write a poem about {x}.",
    "Why is {x} important?", "What do you think about {x}?", "Give me a summary of {x}.", "How does {x} work?",
    "Write an essay on {x}.", "What is the history of {x}?", "Can you explain {x}?",
)  # fmt: skip
_ZH_ABOUT = (
    "解释一下{x}。", "什么是{x}?", "谁发明了{x}?", "写一首关于{x}的诗。", "{x}为什么重要?", "介绍一下{x}。",
    "你怎么看{x}?", "请总结{x}的历史。",
)  # fmt: skip
_NOWHERE = (
    "What is the capital of {x}?", "Capital of {x}?", "Name the capital of {x}.", "Which city is the capital of {x}?",
)  # fmt: skip
_TIMES = (
    "What is {a} times {b}?", "{a} * {b} = ?", "Divide {a} by {b}.", "{a} / {b}", "{a}乘以{b}等于多少?",
    "{a}除以{b}是多少?",
)  # fmt: skip


def refusal(draw: Draw) -> Example:
    (question, key), _ = draw.until_admitted(lambda: _unknown(draw), lambda made: made[1])
    return asked("refusals", key, question, ONLY if question.isascii() else ZH_ONLY)


def _unknown(draw: Draw) -> tuple[str, str]:
    form = draw.number(0, 9)
    if form == 0:
        pieces = (draw.one("BDGKLMNPRSTVZ"), draw.one("aeiou"), draw.one("bdgklmnprstvz"), draw.one("aeiou"))
        place = "".join(pieces) + draw.one(("nia", "land", "stan", "ria"))
        return draw.one(_NOWHERE).format(x=place), f"nowhere {place}"
    if form == 1:
        a, b = draw.number(2, 99), draw.number(2, 99)
        return draw.one(_TIMES).format(a=a, b=b), f"times {a} {b}"
    phrase, topic = (draw.one(_ABOUT), draw.one(TOPICS)) if form < 7 else (draw.one(_ZH_ABOUT), draw.one(ZH_TOPICS))
    return phrase.format(x=topic), f"about {phrase} {topic}"


# --- several turns ---------------------------------------------------------------------------------------------------

# What the user tells, the assistant's word on it, what is asked later, and the answer.
_TOLD = (
    ("My name is {name}.", "Nice to meet you, {name}.", ("What is my name?", "Who am I?", "Do you remember my name?"),
     "Your name is {name}."),
    ("I live in {city}.", "{city} is a good place to be.", ("Where do I live?", "In which city do I live?"),
     "You live in {city}."),
    ("I bought a {item}.", "Enjoy your {item}.", ("What did I buy?", "What have I bought?"), "You bought a {item}."),
    ("My lucky number is {number}.", "I will remember {number}.", ("What is my lucky number?",
     "Which number is my lucky number?"),
     "Your lucky number is {number}."),
)  # fmt: skip
_ZH_TOLD = (
    ("我叫{name}。", "很高兴认识你,{name}。", ("我叫什么名字?", "我是谁?", "你记得我的名字吗?"), "你叫{name}。"),
    ("我住在{city}。", "{city}是个好地方。", ("我住在哪里?", "我住在哪个城市?"), "你住在{city}。"),
    ("我买了{item}。", "好的,{item}很不错。", ("我买了什么?",), "你买了{item}。"),
    ("我的幸运数字是{number}。", "我会记住{number}。", ("我的幸运数字是多少?", "我的幸运数字是几?"),
     "你的幸运数字是{number}。"),
)  # fmt: skip


@dataclass(frozen=True)
class Told:
    """Something the user tells about themselves, and what can be asked about it later."""

    said: str
    acknowledged: str
    questions: tuple[str, ...]
    answer: str


def several_turns(draw: Draw) -> Example:
    return draw.one([_remembered, _remembered, _remembered, _acknowledged, _carried_on])(draw)


def _told(draw: Draw) -> Told:
    chinese = draw.chance(0.35)
    names, cities, items = (ZH_NAMES, ZH_CITIES, ZH_ITEMS) if chinese else (NAMES, CITIES, ITEMS)
    values = {"name": draw.one(names), "city": draw.one(cities), "item": draw.one(items), "number": draw.number(2, 99)}
    said, acknowledged, questions, answer = draw.one(_ZH_TOLD if chinese else _TOLD)
    return Told(said.format(**values), acknowledged.format(**values), questions, answer.format(**values))


def _acknowledged(draw: Draw) -> Example:
    told, key = draw.until_admitted(lambda: _told(draw), lambda made: f"told {made.said}")
    return asked("several turns", key, told.said, told.acknowledged)


def _remembered(draw: Draw) -> Example:
    def make() -> tuple[Told, list[Message]]:
        return _told(draw), [message for _ in range(draw.number(0, 2)) for message in _in_between(draw)]

    (told, between), key = draw.until_admitted(make, lambda made: f"remember {made[0].said} {made[1]}")
    messages = (*_turn(told.said, told.acknowledged), *between, {"role": "user", "content": draw.one(told.questions)})
    return Example("several turns", key, messages, told.answer)


def _in_between(draw: Draw) -> tuple[Message, ...]:
    other = draw.one([small_sum, fact, greeting])(draw)
    return *other.messages, {"role": "assistant", "content": other.answer}


def _turn(said: str, answered: str) -> tuple[Message, Message]:
    return {"role": "user", "content": said}, {"role": "assistant", "content": answered}


_THEN_ADD = (
    "Now add {c}.", "Add {c} to that.", "And plus {c}?", "再加{c}。", "再加{c}等于多少?",
)  # fmt: skip
_THEN_TAKE = (
    "Now subtract {c}.", "Take {c} away from that.", "And minus {c}?", "再减{c}。", "再减{c}等于多少?",
)  # fmt: skip


def _carried_on(draw: Draw) -> Example:
    """A sum, and another on its result."""
    a, b = draw.number(2, 49), draw.number(2, 49)
    plus = draw.chance(0.5)
    total = a + b

    def key_of(c: int) -> str:
        return f"{min(total, c)}+{max(total, c)}" if plus else f"{total}-{c}"

    c, key = draw.until_admitted(lambda: draw.number(1, 99), key_of)
    first = _turn(draw.one(PLUS).format(a=a, b=b), str(total))
    question = draw.one(_THEN_ADD if plus else _THEN_TAKE).format(c=c)
    return Example(
        "several turns", key, (*first, {"role": "user", "content": question}), str(total + c if plus else total - c)
    )
