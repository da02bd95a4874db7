"""Facts known by heart: they must be learnt, so the phrasing is what is held out."""

from collections.abc import Sequence

from ..example import Draw, Example, one_turn
from ..grammar import expanded, framed, mistyped
from ..tables.countries import ALL_CAPITALS, CAPITALS, COMMON_CAPITALS, OTHER_NAMES, ZH_ALL_CAPITALS, ZH_CAPITALS
from ..tables.everyday import ROWS
from ..tables.lists import (
    COLOURS,
    DAYS,
    GREETINGS_IN_BOTH,
    MONTHS,
    OPPOSITES,
    PLURALS,
    SOUNDS,
    SYMBOLS,
    TRANSLATIONS,
    YOUNG,
    ZH_DAYS,
    ZH_MONTHS,
    ZH_OPPOSITES,
)  # fmt: skip
from ..wording import core, loosened
from .sums import in_chinese, in_words

_TELL = "[Tell me|Give me|Name|Say|I need|Do you know|I'd like to know]"

CAPITAL_OF = (
    "[What is|What's|Which is] the capital[ city|] of {x}?",
    "[The capital|Capital|The capital city|Capital city] of {x}[?|]", f"{_TELL} the capital[ city|] of {{x}}[.|]",
    "[Which|What] city is [the capital|the capital city] of {x}?", "{x}: what is [its|the] capital?",
    "The capital[ city|] of {x} is[?| what?|...|]", "[What is|What's|Name|Tell me] {x}'s capital[ city|][?|]",
    "{x} capital[ city|][?|]", "{x}'s capital[?|]", "{x} has [which|what] capital?", "Which city is {x}'s capital?",
    "What is the name of the capital of {x}?", "What capital [does|has] {x}[ have|]?",
    "Which is the capital city in {x}?", "[Can|Could] you [tell me|name] the capital of {x}?",
    "Where is the capital of {x}?", "The name of {x}'s capital[?|]", "In {x}, [what is|which city is] the capital?",
    "What do you call the capital of {x}?", "[I forgot|Remind me of] the capital of {x}[.|]",
    "[What|Which] city is {x} governed from?", "If I go to the capital of {x}, which city is that?",
    "Where is the government of {x}?", "{x} - capital?", "Capital: {x}",
)  # fmt: skip
ZH_CAPITAL_OF = (
    "{x}的首都[是哪里|是什么|是哪个城市|是哪座城市|叫什么|在哪里|在哪|是|][?|]",
    "{x}首都[是哪里|是哪个城市|是什么|叫什么|是|][?|]", "[说出|告诉我|说说]{x}的首都[是哪里|是什么|][。|]",
    "[你知道|知道]{x}的首都[是哪里|是什么|]吗?", "哪[个|座]城市是{x}的首都?",
)  # fmt: skip
_COUNTRY_OF = (
    "{x} is the capital of [which|what] country?", "[Which|What] country has the capital {x}?",
    "{x} is the capital of[?|...|]", "Of [which|what] country is {x} the capital?", "{x} is the capital of what?",
    "{x} is whose capital?", "Whose capital is {x}?",
    "[Name|Tell me|Which is|What is] the country [whose capital is|with the capital] {x}[.|]",
    "[Which|What] country's capital is {x}?", "[What|Which] country is {x} the capital of?",
    "{x} is the capital city of [which|what] country?", "[Which|What] country is {x} in?",
    "In [which|what] country is {x}?",
)  # fmt: skip
_ZH_COUNTRY_OF = ("{x}是[哪个国家|哪国]的首都?", "哪个国家的首都是{x}?", "{x}是谁的首都?")
_OPPOSITE_OF = (
    "[What is|What's] the opposite of {x}?", "[The opposite|Opposite] of {x}[?|]",
    f"{_TELL} the opposite of {{x}}[.|]", "{x} is the opposite of what?", "The opposite of {x} is[?|...|]",
    "Opposite: {x}", "What is {x}'s opposite?", "[Which|What] word is the opposite of {x}?",
    "[What is|What's] the [antonym|antonym of|contrary] of {x}?", "[Antonym|Antonyms] [of|for] {x}",
    "[What word|Which word] means the opposite of {x}?", "Not {x} but?",
    "If [it's|something is] not {x}, it is[?| what?|]", "[Give|Find|Tell me] [an|the] antonym [of|for] {x}[.|]",
    "The opposite word [of|for|to] {x}[?|]", "What's [the opposite word|opposite] [to|of] {x}?", "{x} - opposite?",
    "{x} opposite[?|]", "[What is|Give me] a word that means the opposite of {x}?",
)  # fmt: skip
_ZH_OPPOSITE_OF = (
    "{x}的反义词[是什么|是哪个|是哪个词|是|][?|]", "[说出|告诉我|写出]{x}的反义词[。|]", "与{x}相反的[词|字|]是什么?",
    "{x}反义词[?|]", "反义词:{x}", "{x}的反面是什么?", "{x}的相反是什么?",
)  # fmt: skip
_COLOUR = "[colour|color]"
_COLOUR_OF = (
    f"What {_COLOUR} [is|are|has] {{x}}?", f"Which {_COLOUR} [is|has|does] {{x}}[ have|]?",
    f"[Tell me|What is|What's|Name] the {_COLOUR} of {{x}}[?|.|]", f"{_COLOUR} of {{x}}[?|]",
    f"{{x}} has [which|what] {_COLOUR}?", f"The {_COLOUR} of {{x}}[?| is|]", f"{{x}}: what {_COLOUR}?",
    f"What's {{x}}'s {_COLOUR}?", f"In what {_COLOUR} is {{x}}?", f"{{x}} is [what|which] {_COLOUR}?",
    f"What {_COLOUR} is {{x}} [usually|normally]?",
)  # fmt: skip
_ZH_COLOUR_OF = (
    "{x}是什么颜色[的|]?", "{x}的颜色[是什么|是|是哪种|][?|]", "[说出|告诉我]{x}的颜色[。|]", "{x}什么颜色?", "{x}颜色",
)  # fmt: skip
_SYMBOL_OF = (
    "[What is|What's|Give me|Give] the [chemical symbol|symbol|element symbol] [of|for] {x}[?|]",
    "[Chemical symbol|Symbol|The chemical symbol] [of|for] {x}[?|]", "Which [chemical symbol|symbol] has {x}?",
    "{x} [symbol|chemical symbol][?|]", "[Tell me|Name|Write] the [chemical symbol|symbol] [of|for] {x}[.|]",
    "How is {x} written in chemistry?", "What is {x}'s [symbol|chemical symbol]?", "{x} in the periodic table[?|]",
    "[What|Which] symbol [stands for|does] {x}[ have|]?",
)  # fmt: skip
_ELEMENT_OF = (
    "[Which|What] [element|chemical element] [has the symbol|is|has the chemical symbol|is called|is meant by] {x}?",
    "{x} stands for [which|what] element?", "Element {x}", "The element {x} is[?|...|]",
    "{x} [is|means] what in [chemistry|the periodic table]?", "What is {x} in [chemistry|the periodic table]?",
    "[Name|Tell me] the element [with the symbol |]{x}[.|]", "[Which|What] element is abbreviated {x}?",
    "{x}是[什么|哪种|哪个]元素?", "{x} is the [symbol|chemical symbol] [of|for] [which element|what][?|]",
    "What does the [symbol|chemical symbol] {x} stand for?", "Element with the symbol {x}",
    "[Which|What] element [has the letters|do chemists call|is abbreviated] {x}?",
    "{x} [stands for|means|is short for] which element?", "Of which element is {x} the [symbol|sign]?",
)  # fmt: skip
_ZH_SYMBOL_OF = (
    "{x}的[化学符号|元素符号|符号][是什么|是|][?|]", "[写出|说出|告诉我]{x}的[化学符号|元素符号][。|]", "{x}元素符号",
)  # fmt: skip
_CHINESE = "[Chinese|Mandarin]"
_TO_CHINESE = (
    f"How do [you|I|we] [say|write] {{x}} in {_CHINESE}?",
    f"[Translate|Put|Convert] {{x}} [into|to|in] {_CHINESE}[.|]", f"[What is|What's] {{x}} in {_CHINESE}?",
    f"{{x}} in {_CHINESE}[?|]", f"[The |]{_CHINESE} [word|translation] [for|of] {{x}}[?|]",
    f"{_CHINESE} for {{x}}[?|]",
    f"[What is|What's|Give me|Tell me] the {_CHINESE} [word|translation] [for|of] {{x}}[?|]",
    f"How to say {{x}} in {_CHINESE}[?|]", f"[Translate|Translation] [to|into] {_CHINESE}: {{x}}",
    f"Say {{x}} in {_CHINESE}[.|]", f"What does {{x}} mean in {_CHINESE}?",
    f"[Translate|Please translate] the word {{x}} [into|to] {_CHINESE}[.|]", "What do Chinese people call {x}?",
    f"[Translate|Say] '{{x}}' [into|to|in] {_CHINESE}[.|]", f"[Translate|Say] \"{{x}}\" [into|to|in] {_CHINESE}[.|]",
    f"How do you say '{{x}}' in {_CHINESE}?", f"How do you say \"{{x}}\" in {_CHINESE}?",
    f"English to {_CHINESE}: {{x}}", f"In {_CHINESE}, how do you say {{x}}?",
    "{x}[用|的|]中文[怎么说|是什么|怎么写|][?|]", "[把|将]{x}翻译成中文[。|]", "{x}翻译成中文", "翻译成中文:{x}",
    "{x}用汉语怎么说?", "{x}是什么意思?",
)  # fmt: skip
_TO_ENGLISH = (
    "{x}[用|的|][英语|英文][怎么说|是什么|怎么写|][?|]", "[把|将]{x}翻译成[英文|英语][。|]", "{x}翻译成[英文|英语]",
    "翻译成[英文|英语]:{x}", "[What is|What's] {x} in English?", "[Translate|Put|Convert] {x} [into|to] English[.|]",
    "What does {x} mean[ in English|]?", "{x} in English[?|]", "How do you say {x} in English?",
    "English [for|word for|translation of] {x}[?|]", "[Translate|Translation] [to|into] English: {x}",
    "[Say|Tell me] {x} in English[.|]", "[The meaning|Meaning] of {x}[?|]",
    "What is the [English word for|English translation of|meaning of] {x}?", "Chinese to English: {x}",
    "Translate: {x}", "Translate '{x}' [into|to] English[.|]",
)  # fmt: skip


def _ordered(unit: str, chinese: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ways to ask for the next and for the one before."""
    after = (
        f"[What|Which] [{unit} |]comes [right |directly |]after {{x}}?",
        f"[What|Which] {unit} [follows|is after|is next after] {{x}}?", "What is after {x}?",
        "After {x}[ comes|?|]", "{x} is followed by",
        f"[What is|What's|Name|Tell me] the [{unit} |next {unit} |]after {{x}}[?|]",
        f"[{unit}|The {unit}|Next {unit}] after {{x}}[?|]", "What follows {x}?",
        "[Tell me|Say] what comes after {x}[.|]", f"What {unit} is it after {{x}}?",
        f"{{x}} comes before [which {unit}|what]?", f"After {{x}} [what|which {unit}] comes?",
        f"The {unit} following {{x}}[?|]", "What comes next after {x}?",
    )  # fmt: skip
    before = (
        f"[What|Which] [{unit} |]comes [right |directly |just |]before {{x}}?",
        f"[What|Which] {unit} [precedes|is before] {{x}}?", "What is before {x}?", "Before {x}[ comes|?|]",
        f"[What is|What's|Name|Tell me] the [{unit} |]before {{x}}[?|]", f"[{unit}|The {unit}] before {{x}}[?|]",
        "What precedes {x}?", "[Tell me|Say] what comes before {x}[.|]", f"{{x}} comes after [which {unit}|what]?",
        f"The {unit} preceding {{x}}[?|]", f"What {unit} is it before {{x}}?",
    )  # fmt: skip
    return after, before


_AFTER_DAY, _BEFORE_DAY = _ordered("day", "天")
_AFTER_MONTH, _BEFORE_MONTH = _ordered("month", "月")
_TOMORROW = (
    "[If today is|Today is|If it is|It is] {x}[, what is|. What is|. What day is|, what day is|, which day "
    "is] [tomorrow|it tomorrow]?", "If yesterday was {x}, what is [today|it today]?",
)  # fmt: skip
_YESTERDAY = (
    "[If today is|Today is|If it is] {x}[, what was|. What was|. What day was|, what day was|, which day "
    "was] [yesterday|it yesterday]?", "If tomorrow is {x}, what is [today|it today]?",
)  # fmt: skip
_TWO_AFTER = (
    "[What|Which] [day is|is] two days after {x}?",
    "[If today is|Today is] {x}[, what is|. What is|, what day is] [the day after tomorrow|it in two days]?",
)
_NUMBER_OF_MONTH = (
    "[What|Which] number [is|month is|is the month of] {x}?", "[What|Which] number month is {x}?",
    "[The number|Number|Month number] of {x}", "{x} is which [number|month][?| of the year?]",
    "Which month of the year is {x}, as a number?", "{x} as a number", "{x} month number",
)  # fmt: skip
_MONTH_OF_NUMBER = (
    "[What|Which] [month is number {x}|is month number {x}|is month {x}|month is {x}]?", "Month [number |]{x}",
    "Name of month {x}", "[What|Which] is the {y} month[ of the year|]?", "[The |]{y} month of the year[?|]",
    "Name the {y} month[ of the year|][.|]", "Which month is the {y}[ one|]?",
)  # fmt: skip
_DAY_OF_NUMBER = (
    "[What|Which] is the {y} day of the week?", "[The |]{y} day of the week[?|]", "Name the {y} day of the week[.|]",
    "[What|Which] day is day [number |]{x} of the week?",
)  # fmt: skip
_ZH_AFTER_DAY = (
    "{x}[的|]后一天是[星期几|周几|什么]?", "{x}之后是[星期几|什么]?", "{x}后面是[什么|星期几|]", "{x}之后",
    "{x}的第二天是星期几?", "{x}的后一天", "今天是{x},明天是星期几?",
)  # fmt: skip
_ZH_BEFORE_DAY = (
    "{x}[的|]前一天是[星期几|周几|什么]?", "{x}之前是[星期几|什么]?", "{x}前面是[什么|星期几|]",
    "今天是{x},昨天是星期几?",
)  # fmt: skip
_ZH_AFTER_MONTH = ("{x}[的|]下一个月是[几月|哪个月|什么]?", "{x}之后是[几月|哪个月|什么]?", "{x}后面是[什么|几月]?")
_ZH_BEFORE_MONTH = ("{x}[的|]上一个月是[几月|哪个月|什么]?", "{x}之前是[几月|哪个月|什么]?")
_IN_WORDS = (
    "[Write|Spell|Say|Put] {x} in words[.|]", "[Write|Spell] [the number |]{x} as a word[.|]", "{x} in words[?|]",
    "[What is|How do you write|How do you say] {x} in words?", "How do you [spell|write] the number {x}?",
    "[Write|Spell] out [the number |]{x}[.|]", "The word for {x}[?|]",
)  # fmt: skip
_IN_DIGITS = (
    "[Write|Put|Say] {x} [in digits|as a number|as digits|in numbers|in figures][.|]",
    "{x} [in digits|as a number|in numbers][?|]", "[What is|What number is] {x} [in digits|as a number|in numbers]?",
    "[Which|What] number is {x}?", "[Convert|Turn] {x} [to|into] [a number|digits][.|]",
)  # fmt: skip
_PLURAL_OF = (
    "[What is|What's] the plural[ form|] of {x}?", "[The plural|Plural] of {x}[?|]",
    f"{_TELL} the plural of {{x}}[.|]", "Plural: {x}", "One {x}, two[?|...|]", "{x} in the plural[?|]",
    "[How do you say|What is] more than one {x}?", "One {x}, many[?|...|]", "{x} plural[?|]",
)  # fmt: skip
_SOUND_OF = (
    "[What|Which] [sound|noise] does [a|the] {x} make?", "What does [a|the] {x} say?",
    "What [sound|noise] do {x}s make?", "[The sound|Sound] of a {x}[?|]", "How does a {x} [sound|go]?",
    "A {x} [says|goes|makes][?|...|]", "{x} [sound|noise][?|]",
)  # fmt: skip
_YOUNG_OF = (
    "[What is|What's|What do you call] a [baby|young] {x}[ called|]?", "[The name of|Name for] a [baby|young] {x}",
    "How do you call a [baby|young] {x}?", "[A baby|A young] {x} is called[?| what?| a|]",
    "What is the young of a {x} called?", "[Baby|Young] {x}?",
)  # fmt: skip


def _both_ways(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*pairs, *((second, first) for first, second in pairs)]


def _following(names: Sequence[str], step: int) -> list[tuple[str, str]]:
    return [(name, names[(place + step) % len(names)]) for place, name in enumerate(names)]


_ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
]


def _numbered(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{place}|{_ORDINALS[place - 1]}", name) for place, name in enumerate(names, 1)]


Pairs = Sequence[tuple[str, str]]
_WORDS_OF_BOTH = (*TRANSLATIONS, *GREETINGS_IN_BOTH)
# Ways to ask, what is asked with its answer, and how often.
# An English word in a Chinese question gets an English answer.
FACTS: tuple[tuple[Sequence[str], Pairs, float], ...] = (
    (CAPITAL_OF, COMMON_CAPITALS, 14), (CAPITAL_OF, ALL_CAPITALS, 18), (CAPITAL_OF, OTHER_NAMES, 5), (ZH_CAPITAL_OF,
    ZH_ALL_CAPITALS, 9), (ZH_CAPITAL_OF, COMMON_CAPITALS, 3),
    (_COUNTRY_OF, [(capital, country) for country, capital in COMMON_CAPITALS], 6), (_COUNTRY_OF, [(capital, country)
    for country, capital in CAPITALS], 5),
    (_ZH_COUNTRY_OF, [(capital, country) for country, capital in ZH_CAPITALS], 3),
    (_OPPOSITE_OF, _both_ways(OPPOSITES), 12), (_ZH_OPPOSITE_OF, _both_ways(ZH_OPPOSITES), 4), (_ZH_OPPOSITE_OF,
    _both_ways(OPPOSITES), 2),
    (_COLOUR_OF, [(row[0], row[1]) for row in COLOURS], 7), (_ZH_COLOUR_OF, [(row[2], row[3]) for row in COLOURS if
    len(row) > 2], 3),
    (_SYMBOL_OF, [(row[0], row[1]) for row in SYMBOLS], 5), (_ELEMENT_OF, [(row[1], row[0].capitalize()) for row in
    SYMBOLS], 2), (_ZH_SYMBOL_OF, [(row[2], row[1]) for row in SYMBOLS if len(row) > 2], 3),
    (_TO_CHINESE, _WORDS_OF_BOTH, 14), (_TO_ENGLISH, [(chinese, english) for english, chinese in _WORDS_OF_BOTH], 11),
    (_AFTER_MONTH, _following(MONTHS, 1), 4), (_BEFORE_MONTH, _following(MONTHS, -1), 4), (_AFTER_DAY, _following(DAYS,
    1), 4), (_BEFORE_DAY, _following(DAYS, -1), 4),
    (_TOMORROW, _following(DAYS, 1), 1.5), (_YESTERDAY, _following(DAYS, -1), 1.5), (_TWO_AFTER, _following(DAYS, 2),
    1), (_NUMBER_OF_MONTH, [(month, str(place)) for place, month in enumerate(MONTHS, 1)], 1.5),
    (_MONTH_OF_NUMBER, _numbered(MONTHS), 3), (_DAY_OF_NUMBER, _numbered(DAYS), 1.5),
    (_ZH_AFTER_DAY, _following(ZH_DAYS, 1), 3), (_ZH_BEFORE_DAY, _following(ZH_DAYS, -1), 2), (_ZH_AFTER_MONTH,
    _following(ZH_MONTHS, 1), 2), (_ZH_BEFORE_MONTH, _following(ZH_MONTHS, -1), 1.5),
    (_IN_WORDS, [(str(number), in_words(number)) for number in (*range(101), 200, 500)], 3),
    (_IN_DIGITS, [(in_words(number), str(number)) for number in range(100)], 3),
    (_IN_DIGITS[:3], [(in_chinese(number), str(number)) for number in range(30)], 1),
    (_PLURAL_OF, PLURALS, 6), (_SOUND_OF, SOUNDS, 3), (_YOUNG_OF, YOUNG, 3),
)  # fmt: skip
_PLAIN_FACTS: tuple[tuple[Sequence[str], Pairs], ...] = (
    (_OPPOSITE_OF, _both_ways(OPPOSITES)), (_PLURAL_OF, PLURALS),
    (_COLOUR_OF, [(row[0], row[1]) for row in COLOURS]), (_SOUND_OF, SOUNDS), (_YOUNG_OF, YOUNG),
    (_AFTER_MONTH, _following(MONTHS, 1)), (_BEFORE_MONTH, _following(MONTHS, -1)), (_AFTER_DAY, _following(DAYS, 1)),
    (_BEFORE_DAY, _following(DAYS, -1)), (_IN_WORDS, [(str(number), in_words(number)) for number in range(100)]),
    (_IN_DIGITS, [(in_words(number), str(number)) for number in range(100)]),
)  # fmt: skip
# What may be asked of any word, known or not.
ASKED_OF_WORDS = (_OPPOSITE_OF, _COLOUR_OF, _PLURAL_OF, _SYMBOL_OF, _SOUND_OF, _YOUNG_OF)
_FACT_WEIGHTS = [weight for *_, weight in FACTS]
# How people set off the word that they ask about.
_QUOTES = ('"{}"', "'{}'", "“{}”", "「{}」")
# How often one of the single questions comes, against the tables above.
_SINGLE_SHARE = 0.24


def fact(draw: Draw) -> Example:
    return _single(draw) if draw.chance(_SINGLE_SHARE) else _of_table(draw)


def _of_table(draw: Draw) -> Example:
    def make() -> tuple[str, Pairs]:
        phrases, pairs, _ = draw.random.choices(FACTS, _FACT_WEIGHTS)[0]
        return _phrase(draw, phrases), pairs

    (phrase, pairs), key = draw.until_admitted(make, lambda made: phrase_key(made[0]))
    thing, answer = draw.one(pairs)
    number, _, ordinal = thing.partition("|")
    quote = draw.one(_QUOTES) if draw.chance(0.06) and not number.isdigit() else "{}"
    # Loosened with the thing in it: "the capital of france" is asked as often as that of France.
    question = mistyped(draw, phrase).replace("{x}", quote.format(number)).replace("{y}", ordinal)
    return one_turn("facts", key, loosened(draw, question), answer)


def plain_fact(draw: Draw) -> Example:
    """One of few tables in plain English, for a model far smaller than pocket."""

    def make() -> tuple[str, Pairs]:
        phrases, pairs = draw.one(_PLAIN_FACTS)
        return expanded(draw, draw.one(phrases)), pairs

    (phrase, pairs), key = draw.until_admitted(make, lambda made: phrase_key(made[0]))
    thing, answer = draw.one(pairs)
    return one_turn("plain facts", key, phrase.replace("{x}", thing), answer)


def _single(draw: Draw) -> Example:
    def make() -> tuple[str, str]:
        phrases, answer = draw.one(ROWS)
        return _phrase(draw, phrases), answer

    (phrase, answer), key = draw.until_admitted(make, lambda made: phrase_key(made[0]))
    return one_turn("facts", key, loosened(draw, mistyped(draw, phrase)), answer)


def _phrase(draw: Draw, phrases: Sequence[str]) -> str:
    phrase = framed(draw, expanded(draw, draw.one(phrases)), share=0.15)
    return phrase[0].upper() + phrase[1:] if phrase[0] != "{" and draw.chance(0.5) else phrase


def phrase_key(phrase: str) -> str:
    return f"phrase {core(phrase)}"
