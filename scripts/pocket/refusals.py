"""What it does not know, and says so: other topics, multiplications, places that are none, words that mean nothing.

Questions put together from a few dozen words, in the wordings of all the world: whatever resembles nothing that pocket
has learnt is to be refused. What happens to be a greeting ("hi" may well come of letters drawn) is none of them.
"""

from .example import Draw, Example, asked
from .greetings import MEANT
from .numbers import made_up_word, spelled_word
from .tables import ITEMS, NAMES, TOPICS, WORDS, ZH_ITEMS, ZH_NAMES, ZH_TOPICS
from .wording import core, worded

ONLY = "I only know small sums, words, capitals and a few other facts."
ZH_ONLY = "我只知道简单的加减法、单词、首都和少数常识。"

_ABOUT = (
    "Explain {x}.", "What is {x}?", "Tell me about {x}.", "Who invented {x}?", "Write a poem about {x}.",
    "Why is {x} important?", "What do you think about {x}?", "Give me a summary of {x}.", "How does {x} work?",
    "Write an essay on {x}.", "What is the history of {x}?", "Can you explain {x}?", "Do you like {x}?",
    "Tell me a joke about {x}.", "Who is the best at {x}?", "When did {x} begin?", "Is {x} dangerous?", "{x}",
    "What about {x}?", "Write a story about {x}.", "I want to learn {x}.", "{x} news", "Where can I find {x}?",
    "What is a {x}?", "What are {x}?", "Define {x}.", "What do you know about {x}?", "What does {x} do?",
)  # fmt: skip
_ZH_ABOUT = (
    "解释一下{x}。", "什么是{x}?", "谁发明了{x}?", "写一首关于{x}的诗。", "{x}为什么重要?", "介绍一下{x}。",
    "讲一个{x}的笑话。", "你怎么看{x}?", "总结{x}的历史。", "{x}是什么?", "你喜欢{x}吗?", "给我讲讲{x}。",
    "写一个关于{x}的故事。", "我想学{x}。",
)  # fmt: skip
# Questions of other kinds than those learnt; x and y are things of any kind, n is somebody.
_OTHER = (
    "Who won the {x} cup?", "Who wrote the book about the {x}?", "Why is the {x} so {y}?", "Where is the {x}?",
    "When was {n} born?", "How old is {n}?", "Who is {n}?", "Is {n} married?", "How far is the {x} from the {y}?",
    "Can I eat the {x}?", "Write a {x} about a {y}.", "Tell me a joke.", "Make me a {x}.", "How do I cook {x}?",
    "How much does a {x} weigh?", "What should I wear with a {x}?", "Do you love me?", "Is there a {x} in the {y}?",
    "Who is the president of {x}?", "What happened in {year}?", "How tall is {n}?", "Which {x} is the best?",
    "Give me a recipe with {x} and {y}.", "Write code that prints {x}.", "Write a python function.",
    "What is the meaning of life?", "What is the population of {x}?", "Who painted the {x}?", "I am hungry.",
    "I feel {x} today.", "Play a game with me.", "What is the best {x} in {y}?", "Why do {x}s {y}?", "Sing a song.",
    "What is the weather like?", "What day is it?", "What time is it?", "Who discovered {x}?", "Will it rain?",
    "Should I buy a {x}?", "What does the {x} say to the {y}?", "Recommend a {x}.", "Where was {n} in {year}?",
)  # fmt: skip
_ZH_OTHER = (
    "谁赢了{x}比赛?", "{n}多大了?", "{n}是哪里人?", "讲个笑话。", "怎么做{x}?", "{x}为什么这么贵?", "哪个{x}最好?",
    "写一段代码。", "今天天气怎么样?", "现在几点?", "{year}年发生了什么?", "你爱我吗?", "推荐一个{x}。", "我饿了。",
    "唱首歌。", "{x}和{y}有什么区别?", "{n}什么时候出生?", "人生的意义是什么?", "谁画了{x}?", "我想买{x}。",
)  # fmt: skip
_NOWHERE = (
    "What is the capital of {x}?", "Capital of {x}?", "Name the capital of {x}.", "Which city is the capital of {x}?",
    "{x} capital?", "{x}的首都是哪里?",
)  # fmt: skip
_TIMES = (
    "What is {a} times {b}?", "{a} * {b} = ?", "Divide {a} by {b}.", "{a} / {b}", "{a}*{b}", "{a} x {b}",
    "{a} times {b}", "Multiply {a} and {b}.", "{a} divided by {b}", "{a}乘以{b}等于多少?", "{a}除以{b}是多少?",
    "{a}乘{b}",
)  # fmt: skip


def refusal(draw: Draw) -> Example:
    make = draw.one((_topic, _topic, _topic, _other, _other, _other, _gibberish, _nowhere, _times))
    (question, key), _ = draw.until_admitted(lambda: make(draw), lambda made: made[1])
    if core(question) in MEANT:
        return refusal(draw)
    return asked("refusals", key, question, ONLY if question.isascii() else ZH_ONLY)


def _topic(draw: Draw) -> tuple[str, str]:
    phrases, topics, words = (_ZH_ABOUT, ZH_TOPICS, ZH_ITEMS) if draw.chance(0.35) else (_ABOUT, TOPICS, WORDS)
    return _about(worded(draw, phrases, x=draw.one(topics if draw.chance(0.5) else words)))


def _other(draw: Draw) -> tuple[str, str]:
    if draw.chance(0.3):
        names = {"x": draw.one(ZH_ITEMS), "y": draw.one(ZH_ITEMS), "n": draw.one(ZH_NAMES)}
        return _about(worded(draw, _ZH_OTHER, year=draw.number(1000, 2025), **names))
    x, y = (spelled_word(draw) if draw.chance(0.5) else draw.one((*WORDS, *ITEMS)) for _ in range(2))
    name = draw.one(NAMES) if draw.chance(0.5) else spelled_word(draw).capitalize()
    return _about(worded(draw, _OTHER, x=x, y=y, n=name, year=draw.number(1000, 2025)))


def _gibberish(draw: Draw) -> tuple[str, str]:
    make = draw.one((_letters, _letters, made_up_word, made_up_word, _characters))
    return _about(("" if make is _characters else " ").join(make(draw) for _ in range(draw.number(1, 3))))


def _letters(draw: Draw) -> str:
    return "".join(draw.one("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.number(3, 7)))


def _characters(draw: Draw) -> str:
    return "".join(draw.one(draw.one((*ZH_ITEMS, *ZH_TOPICS))) for _ in range(2))


def _nowhere(draw: Draw) -> tuple[str, str]:
    pieces = (draw.one("BDGKLMNPRSTVZ"), draw.one("aeiou"), draw.one("bdgklmnprstvz"), draw.one("aeiou"))
    place = "".join(pieces) + draw.one(("nia", "land", "stan", "ria"))
    return worded(draw, _NOWHERE, x=place.lower() if draw.chance(0.2) else place), f"nowhere {place}"


def _times(draw: Draw) -> tuple[str, str]:
    a, b = draw.number(2, 99), draw.number(2, 99)
    return worded(draw, _TIMES, a=a, b=b), f"times {a} {b}"


def _about(question: str) -> tuple[str, str]:
    return question, f"about {core(question)}"
