"""Questions about words: copying, reversing, and facts known by heart."""

from collections.abc import Sequence

from .example import LETTER_GAP, Draw, Example, asked
from .greetings import SAID
from .numbers import spelled_word
from .tables import (
    CAPITALS,
    COLOURS,
    DAYS,
    ITEMS,
    MONTHS,
    OPPOSITES,
    SYMBOLS,
    TRANSLATIONS,
    WORDS,
    ZH_DAYS,
    ZH_ITEMS,
    ZH_OPPOSITES,
)  # fmt: skip
from .wording import core, loosened, worded

# --- copying ---------------------------------------------------------------------------------------------------------

_REPEAT = (
    "Repeat after me: {text}", "Say exactly this: {text}", "Repeat: {text}", "Copy this: {text}", "Echo: {text}",
    "Write the following once more: {text}", "Say: {text}", "Repeat {text}", "Echo {text}", "Say {text}", "Copy {text}",
    "Can you repeat this: {text}", "Can you say {text}", "Just say {text}", "Now say {text}", "Say this: {text}",
    "重复:{text}", "跟我说:{text}", "照抄一遍:{text}", "请原样输出:{text}", "重复一遍{text}", "说{text}", "说:{text}",
)  # fmt: skip


def copying(draw: Draw) -> Example:
    text, key = draw.until_admitted(lambda: _text_to_copy(draw), lambda made: f"copy {made}")
    return asked("copying", key, worded(draw, _REPEAT, text=text), text)


def _text_to_copy(draw: Draw) -> str:
    form = draw.number(0, 4)
    if form == 0:
        return "".join(str(draw.number(0, 9)) for _ in range(draw.number(3, 8)))
    if form == 1:
        return "".join(draw.some(ZH_ITEMS, draw.number(2, 5)))
    if form == 2:  # what would get another answer if it were not to be copied
        return draw.phrase(draw.one(SAID).said)
    return " ".join(draw.one(WORDS) if form == 3 else spelled_word(draw) for _ in range(draw.number(1, 6)))


# --- reversing -------------------------------------------------------------------------------------------------------

_BACKWARDS = (
    "Reverse the word {text}.", "Write {text} backwards.", "Spell {text} backwards.", "What is {text} reversed?",
    "Reverse {text}.", "Reverse: {text}", "{text} backwards", "{text} reversed", "Reverse this: {text}",
    "What is {text} backwards?", "Can you reverse {text}?", "把{text}倒过来写。", "{text}倒过来是什么?", "反转{text}。",
    "倒写{text}", "反转:{text}",
)  # fmt: skip
_LIST_BACKWARDS = (
    "Reverse this list: {text}", "Put this list in reverse order: {text}", "List these backwards: {text}",
    "Reverse the list {text}", "Reverse: {text}", "Reverse {text}", "{text} backwards", "把这个列表倒过来:{text}",
    "倒序列出:{text}", "反转:{text}",
)  # fmt: skip


def reversing(draw: Draw) -> Example:
    form = draw.number(0, 4)
    if form == 0:
        items, key = draw.until_admitted(lambda: draw.some(ITEMS, draw.number(3, 6)), lambda made: f"reverse {made}")
        question = worded(draw, _LIST_BACKWARDS, text=", ".join(items))
        return asked("reversing", key, question, ", ".join(items[::-1]))
    make = (lambda: _digits(draw)) if form == 1 else (lambda: spelled_word(draw))
    text, key = draw.until_admitted(make, lambda made: f"reverse {made}")
    # Digits are tokens already; of a word the letters have to be called up first.
    thinking = None if form == 1 else " ".join(text)
    answer = text[::-1] if form == 1 else LETTER_GAP.join(text[::-1])
    return asked("reversing", key, worded(draw, _BACKWARDS, text=text), answer, thinking=thinking)


def _digits(draw: Draw) -> str:
    return "".join(str(draw.number(0, 9)) for _ in range(draw.number(3, 6)))


# --- facts: learnt by heart, so the phrasing is what is held out -----------------------------------------------------

_CAPITAL_OF = (
    "What is the capital of {x}?", "Capital of {x}?", "Name the capital of {x}.", "Which city is the capital of {x}?",
    "Tell me the capital city of {x}.", "{x}: what is its capital?", "The capital of {x} is",
    "Do you know the capital of {x}?", "What is {x}'s capital?", "{x} capital?", "{x}'s capital", "Capital city of {x}",
    "What city is the capital of {x}?", "{x} has which capital?", "What is the capital city of {x}?",
    "Tell me the capital of {x}.", "The capital of {x}?", "Which city is {x}'s capital?", "Give me the capital of {x}.",
)  # fmt: skip
_ZH_CAPITAL_OF = (
    "{x}的首都是哪里?", "{x}的首都是什么?", "{x}首都是哪个城市?", "说出{x}的首都。", "{x}的首都", "{x}首都",
    "{x}的首都是", "{x}首都是", "你知道{x}的首都吗?", "{x}的首都是哪座城市?", "告诉我{x}的首都是哪里。",
    "{x}首都是哪里?", "告诉我{x}的首都。", "{x}的首都叫什么?",
)  # fmt: skip
_COUNTRY_OF = (
    "{x} is the capital of which country?", "Which country has the capital {x}?", "{x} is the capital of",
    "Of which country is {x} the capital?", "{x} is the capital of what?", "{x} is whose capital?",
    "Whose capital is {x}?", "Name the country whose capital is {x}.",
)  # fmt: skip
_OPPOSITE_OF = (
    "What is the opposite of {x}?", "Opposite of {x}?", "Name the opposite of {x}.", "Give the opposite of {x}.",
    "{x} is the opposite of what?", "The opposite of {x} is", "Opposite: {x}", "What is {x}'s opposite?",
    "Say the opposite of {x}.", "Which word is the opposite of {x}?", "Tell me the opposite of {x}.",
    "Give me the opposite of {x}.",
)  # fmt: skip
_ZH_OPPOSITE_OF = (
    "{x}的反义词是什么?", "说出{x}的反义词。", "{x}的反义词是", "与{x}相反的词是什么?", "{x}的反义词", "{x}反义词",
    "反义词:{x}", "{x}的反义词是哪个?", "告诉我{x}的反义词。", "{x}的反义词是哪个词?",
)  # fmt: skip
_COLOUR_OF = (
    "What colour is {x}?", "What color is {x}?", "Which colour has {x}?", "Tell me the colour of {x}.",
    "What is the colour of {x}?", "Colour of {x}?", "Color of {x}", "{x} has which color?", "Which color has {x}?",
    "Name the colour of {x}.", "Which colour is {x}?", "What is the color of {x}?",
)  # fmt: skip
_ZH_COLOUR_OF = (
    "{x}是什么颜色?", "{x}是什么颜色的?", "{x}的颜色是什么?", "说出{x}的颜色。", "{x}什么颜色?", "{x}的颜色",
    "{x}的颜色是", "{x}颜色", "告诉我{x}的颜色。", "{x}的颜色是哪种?",
)  # fmt: skip
_SYMBOL_OF = (
    "What is the chemical symbol of {x}?", "What is the symbol for {x}?", "Chemical symbol of {x}?",
    "Which symbol has {x}?", "Give the chemical symbol for {x}.", "Symbol of {x}", "{x} symbol?", "Symbol for {x}?",
    "Tell me the symbol of {x}.", "What is the chemical symbol for {x}?",
)  # fmt: skip
_ZH_SYMBOL_OF = (
    "{x}的化学符号是什么?", "{x}的元素符号是什么?", "{x}的符号是什么?", "写出{x}的化学符号。", "{x}的符号",
    "{x}的元素符号", "{x}的符号是", "{x}元素符号", "说出{x}的元素符号。", "{x}的化学符号",
)  # fmt: skip
_TO_CHINESE = (
    "How do you say {x} in Chinese?", "Translate {x} into Chinese.", "What is {x} in Chinese?", "{x} in Chinese?",
    "{x}用中文怎么说?", "{x}的中文是什么?", "{x}的中文", "把{x}翻译成中文。", "Translate {x} to Chinese.",
    "Chinese for {x}?", "{x}中文怎么说?", "What does {x} mean in Chinese?", "How to say {x} in Chinese?",
)  # fmt: skip
_TO_ENGLISH = (
    "{x}用英语怎么说?", "{x}的英文是什么?", "{x}的英文", "把{x}翻译成英文。", "What is {x} in English?",
    "Translate {x} into English.", "What does {x} mean?", "Translate {x} to English.", "{x} in English?",
    "{x}英文怎么说?", "How do you say {x} in English?", "English for {x}?",
)  # fmt: skip
_NEXT = (
    "What comes after {x}?", "Which one follows {x}?", "What is after {x}?", "After {x} comes", "{x} is followed by",
    "What comes right after {x}?", "After {x}?", "What follows {x}?", "Tell me what comes after {x}.",
)  # fmt: skip
_BEFORE = (
    "What comes before {x}?", "Which one is before {x}?", "What is before {x}?", "Before {x} comes",
    "What comes right before {x}?", "Before {x}?", "What precedes {x}?", "Tell me what comes before {x}.",
)  # fmt: skip
_ZH_NEXT = (
    "{x}的后一天是星期几?", "{x}之后是星期几?", "{x}后面是什么?", "{x}后面是", "{x}之后", "{x}的第二天是星期几?",
    "{x}之后是什么?", "{x}的后一天", "{x}后面是星期几?",
)  # fmt: skip


def _both_ways(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*pairs, *((second, first) for first, second in pairs)]


def _following(names: Sequence[str], step: int) -> list[tuple[str, str]]:
    return [(name, names[(place + step) % len(names)]) for place, name in enumerate(names)]


# Ways to ask, and what is asked with its answer. An English word in a Chinese question gets an English answer.
FACTS: tuple[tuple[Sequence[str], Sequence[tuple[str, str]]], ...] = (
    (_CAPITAL_OF, [(row[0], row[1]) for row in CAPITALS]),
    (_ZH_CAPITAL_OF, [(row[2], row[3]) for row in CAPITALS]),
    (_ZH_CAPITAL_OF, [(row[0], row[1]) for row in CAPITALS]),
    (_COUNTRY_OF, [(row[1], row[0]) for row in CAPITALS]),
    (_OPPOSITE_OF, _both_ways(OPPOSITES)),
    (_ZH_OPPOSITE_OF, _both_ways(ZH_OPPOSITES)),
    (_ZH_OPPOSITE_OF, _both_ways(OPPOSITES)),
    (_COLOUR_OF, [(row[0], row[1]) for row in COLOURS]),
    (_ZH_COLOUR_OF, [(row[2], row[3]) for row in COLOURS]),
    (_SYMBOL_OF, [(row[0], row[1]) for row in SYMBOLS]),
    (_ZH_SYMBOL_OF, [(row[2], row[1]) for row in SYMBOLS]),
    (_ZH_SYMBOL_OF, [(row[0], row[1]) for row in SYMBOLS]),
    (_TO_CHINESE, TRANSLATIONS),
    (_TO_ENGLISH, [(chinese, english) for english, chinese in TRANSLATIONS]),
    (_NEXT, [*_following(MONTHS, 1), *_following(DAYS, 1)]),
    (_BEFORE, [*_following(MONTHS, -1), *_following(DAYS, -1)]),
    (_ZH_NEXT, _following(ZH_DAYS, 1)),
)
_FACT_WEIGHTS = [len(pairs) for _, pairs in FACTS]


def fact(draw: Draw) -> Example:
    phrases, pairs = draw.random.choices(FACTS, _FACT_WEIGHTS)[0]
    phrase, (thing, answer) = draw.phrase(phrases), draw.one(pairs)
    # Loosened with the thing in it: "the capital of france" is asked as often as that of France.
    return asked("facts", f"phrase {core(phrase)}", loosened(draw, phrase.format(x=thing)), answer)
