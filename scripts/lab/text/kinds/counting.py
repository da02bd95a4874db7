"""Counting: letters and vowels of a word, words of a sentence, things of a list, upwards and down."""

from ..example import Draw, Example, one_turn
from ..grammar import phrased
from ..tables.lists import CITIES, DAYS, ITEMS, MONTHS, NAMES, ZH_CITIES, ZH_ITEMS, ZH_NAMES
from ..tables.vocabulary import SMALL_WORDS, WORDS, spelled_word
from .sums import in_words


def counting(draw: Draw) -> Example:
    forms = (_count_letter, _count_letter, _count_letter, _count_letters, _count_letters, _count_items, _count_items,
        _count_words,
             _count_vowels, _count_up, _count_up, _count_down)  # fmt: skip
    return draw.one(forms)(draw)


_LETTER = (
    "How many times [is the letter|does the letter|does] {letter} [in|appear in|occur in|come up in] [the word |"
    "]{word}?", "How many {letter}['s|s||s are|'s are| are] [there |]in [the word |]{word}?",
    "Count [the letter|the|how many|the number of] {letter}['s|s|] in [the word |]{word}[.|]",
    "How often [does|is] {letter} [occur|appear|come|found] in {word}?",
    "[Number|The number] of {letter}['s|s|] in [the word |]{word}",
    "How many letters {letter} are in [the word |]{word}?", "In the word {word}, how many {letter}['s|s|] are there?",
    "How many {letter}['s|s|] does [the word |]{word} [have|contain]?", "{word}: how many {letter}['s|s|]?",
    "[What is|Tell me] the number of {letter}['s|s|] in {word}[?|]",
    "How many times does {letter} appear in \"{word}\"?", "{word}[里|中|里面][有|一共有]几个{letter}?",
    "单词{word}中有[几个|多少个][字母|]{letter}?", "{word}有[几|多少]个{letter}?",
    "[数一数|数数]{word}里有几个{letter}。",
)  # fmt: skip
_LETTERS = (
    "How many letters [has|are in|are there in|in|does] [the word |]{word}[ have|]?",
    "Count [the|all|] letters [of|in] [the word |]{word}[.|]", "How long is [the word |]{word}?",
    "[The length|Length|What is the length] of [the word |]{word}", "Letters in {word}?",
    "[Number|The number|What is the number] of letters in [the word |]{word}", "{word}: how many letters?",
    "How many [characters|letters] [does|are in] {word}[ have|]?", "How many letters does \"{word}\" have?",
    "[Tell me|Say] how many letters [{word} has|are in {word}][.|]", "How many letters are there in {word}?",
    "In {word}, how many letters are there?", "{word}[一共|]有[几|多少]个字母?", "单词{word}一共有多少个字母?",
    "{word}有多长?", "[数一数|数数]{word}有几个字母。",
)  # fmt: skip
_VOWELS = (
    "How many vowels [are in|are there in|in|does] [the word |]{word}[ have|]?",
    "Count the vowels [of|in] [the word |]{word}[.|]", "[Number|The number] of vowels in {word}",
)  # fmt: skip
_WORDS_IN = (
    "How many words are [in|in this|there in this] [sentence|text|phrase|]: {text}",
    "Count the words[ in|:| in this:| in this sentence:| of this sentence:] {text}",
    "How many words[ are here|]: {text}", "How many words does this [sentence|text|] have: {text}",
    "How many words are [there |]in \"{text}\"?", "[Number|The number] of words in [this|this sentence]: {text}",
    "How many words are in the sentence '{text}'?",
)  # fmt: skip
_LISTED = (
    "How many [words|things|items|objects|] are [in this list|here|there|these|listed]: {list}[?|]",
    "Count [the items|these things|these|them|the things|the words|everything|]: {list}",
    "How many [items|things|words] [does this list have|has this list|is this]: {list}[?|]", "How many: {list}?",
    "Count these: {list}", "{list}: how many [things|items|words|] [are these|are there|are they|is that][?|]",
    "How many [items|things|elements] are in [the list|this list][:|] {list}?",
    "[The number|Number] of [items|things] in [the list|this list]: {list}",
    "I have {list}. How many [things|items] [do I have|is that|are there]?",
    "I bought {list}. How many things did I buy?", "Count how many [things|items] [there are|I list]: {list}",
    "How many [items|things] did I [list|name]: {list}?",
)  # fmt: skip
_ZH_LISTED = (
    "{list},[一共|]有几个?", "数一数[有几样东西|有几个|]:{list}", "这个列表[里|]有几个词:{list}?", "数一数:{list}",
    "{list},一共[几|多少][样|个]?", "有[几|多少]样东西:{list}?",
)  # fmt: skip
# By what they are, with what they are: any list may be of words or things.
_NAMED = (
    "How many {noun} [are here|are there|are these|do you see|are listed|do I have|can you count]: {list}[?|]",
    "{list}[:| -|.|, that is| makes] how many {noun}[ are these| is that| are there|][?|]",
    "Count [the|my|these|all] {noun}: {list}", "How many {noun} did I [name|list|mention|say|give you]: {list}[?|]",
    "My {noun} are {list}. How many [do I have|are that|are there]?", "[Number|The number] of {noun}: {list}",
    "I [have|see|like] {list}. How many {noun} [is that|are that|are there]?",
)  # fmt: skip
_ZH_NAMED = (
    "{list}[,|。]一共有[几|多少][个|种|样]{noun}?", "有[几|多少][个|种]{noun}:{list}?", "数一数有几个{noun}:{list}",
    "我有{list},[一共|]有[几|多少][个|种]{noun}?",
)  # fmt: skip
_POOLS = (
    ("items", ITEMS), ("things", ITEMS), ("things", WORDS), ("words", WORDS), ("names", NAMES), ("people", NAMES),
    ("friends", NAMES), ("cities", CITIES[:60]), ("capitals", CITIES[:60]), ("months", MONTHS), ("days", DAYS),
    ("fruits", ("apple", "pear", "plum", "banana", "cherry", "grape", "lemon", "mango", "peach", "orange", "melon")),
    ("animals", ("dog", "cat", "horse", "cow", "pig", "goat", "sheep", "lion", "tiger", "bear", "wolf", "duck")),
    ("colors", ("red", "blue", "green", "yellow", "black", "white", "pink", "brown", "gray", "purple", "orange")),
    ("colours", ("red", "blue", "green", "yellow", "black", "white", "pink", "brown", "grey", "purple", "orange")),
)  # fmt: skip
_ZH_POOLS = (
    ("东西", ZH_ITEMS), ("词", ZH_ITEMS), ("城市", ZH_CITIES[:40]), ("名字", ZH_NAMES), ("人", ZH_NAMES),
    ("水果", ("苹果", "香蕉", "梨", "桃子", "西瓜", "葡萄", "橙子", "草莓", "芒果", "樱桃")),
    ("动物", ("猫", "狗", "马", "牛", "羊", "猪", "鸡", "鸭子", "老虎", "兔子", "大象", "鱼")),
    ("颜色", ("红", "黄", "蓝", "绿", "黑", "白", "紫", "灰", "粉", "橙")),
)  # fmt: skip
_UP_TO = (
    "Count [up |]from {a} to {b}[.|]", "Count {a} to {b}[.|]",
    "[List|Write|Say|Give me|Print|Show|Name] [all |][the |]numbers [from|between] {a} [to|and] {b}[.|]",
    "[Numbers|The numbers|All numbers] from {a} to {b}", "Count from {a} up to {b}[.|]", "[Write|Say] {a} to {b}[.|]",
    "[Go on|Keep|Keep on] counting from {a} [to|until|till] {b}[.|]",
    "Count [up |]from {a} [until|till|through] {b}[.|]", "[Which|What] numbers [are|go|come] from {a} to {b}?",
    "{a}, {c}, {d}, ... [up to|to|until|till] {b}", "[Count on|Continue|Go on]: {a}, {c}, {d} [up to|to|until] {b}",
    "[Start at|Begin at|Starting at|Beginning with] {a}[ and|,] count [up |]to {b}[.|]", "Counting from {a} to {b}",
    "从{a}[数|]到{b}。", "数数,从{a}到{b}。", "从{a}数到{b}", "[写出|列出|说出]从{a}到{b}的数[字|]。",
)  # fmt: skip
_TO = (
    "Count to {b}[.|]", "Count [up|] to {b}[.|]", "[List|Say|Write] the [first {b} numbers|numbers up to {b}][.|]",
    "Can you count to {b}?", "数到{b}。", "从一数到{b}。",
)  # fmt: skip
# Down to one: where it ends is not said.
_FROM = (
    "Count [down|backwards|backward|back] from {a}[.|]", "[Countdown|Count down|A countdown] from {a}",
    "[Start|Begin] at {a} and count [down|backwards|back][.|]", "从{a}倒数。", "从{a}[开始|]倒着数。",
)  # fmt: skip
_DOWN_TO = (
    "Count [down|backwards|backward|back] from {a} to {b}[.|]", "Count from {a} [down|back|backwards] to {b}[.|]",
    "[Countdown|Count down|A countdown] from {a} to {b}", "[List|Write|Say] the numbers from {a} down to {b}[.|]",
    "Count from {a} to {b}[.|]", "从{a}倒数到{b}。", "倒数,从{a}到{b}。", "从{a}倒着数到{b}。",
)  # fmt: skip


def _count_letter(draw: Draw) -> Example:
    def make() -> tuple[str, str]:
        word = spelled_word(draw)
        return word, draw.one(word) if draw.chance(0.8) else draw.one("aeiounrst")

    (word, letter), key = draw.until_admitted(make, lambda made: "letter {} {}".format(*made))
    steps, seen = [], 0
    for each in word:
        seen += each == letter
        steps.append(f"{each} {seen}" if each == letter else each)
    shown = letter.upper() if draw.chance(0.08) else f'"{letter}"' if draw.chance(0.06) else letter
    question = phrased(draw, _LETTER, letter=shown, word=_shown(draw, word))
    return one_turn("counting", key, question, seen, thinking="\n".join(steps))


def _shown(draw: Draw, word: str) -> str:
    """A word as people write it into a question: now and then with a capital or in quotes."""
    form = draw.number(0, 19)
    return word.capitalize() if form == 0 else f'"{word}"' if form == 1 else f"'{word}'" if form == 2 else word


def _count_letters(draw: Draw) -> Example:
    word, key = draw.until_admitted(lambda: spelled_word(draw), lambda made: f"length {made}")
    steps = "\n".join(f"{letter} {place}" for place, letter in enumerate(word, 1))
    return one_turn("counting", key, phrased(draw, _LETTERS, word=_shown(draw, word)), len(word), thinking=steps)


def _count_vowels(draw: Draw) -> Example:
    word, key = draw.until_admitted(lambda: spelled_word(draw), lambda made: f"vowels {made}")
    steps, seen = [], 0
    for each in word:
        seen += each in "aeiou"
        steps.append(f"{each} {seen}" if each in "aeiou" else each)
    return one_turn("counting", key, phrased(draw, _VOWELS, word=_shown(draw, word)), seen, thinking="\n".join(steps))


def _count_words(draw: Draw) -> Example:
    words, key = draw.until_admitted(
        lambda: [draw.one(SMALL_WORDS) if draw.chance(0.4) else draw.one(WORDS) for _ in range(draw.number(2, 8))],
        lambda made: f"words {made}",
    )
    text = " ".join(words)
    text = text.capitalize() if draw.chance(0.4) else text
    steps = "\n".join(f"{place} {word}" for place, word in enumerate(words, 1))
    return one_turn("counting", key, phrased(draw, _WORDS_IN, text=text), len(words), thinking=steps)


def _count_items(draw: Draw) -> Example:
    chinese = draw.chance(0.35)
    noun, pool = draw.one(_ZH_POOLS if chinese else _POOLS)
    most = min(8, len(pool))
    words, key = draw.until_admitted(lambda: draw.some(pool, draw.number(2, most)), lambda made: f"items {made}")
    between = draw.one(("、", "、", ",", "，")) if chinese else draw.one((", ", ", ", ", ", ",", " "))
    text = between.join(words)
    if between == ", " and not chinese and draw.chance(0.25):
        text = ", ".join(words[:-1]) + " and " + words[-1]
    steps = "\n".join(f"{place} {word}" for place, word in enumerate(words, 1))
    ways = (_ZH_LISTED if chinese else _LISTED) if draw.chance(0.6) else (_ZH_NAMED if chinese else _NAMED)
    return one_turn("counting", key, phrased(draw, ways, list=text, noun=noun), len(words), thinking=steps)


def _count_up(draw: Draw) -> Example:
    def make() -> tuple[int, int]:
        # Now and then over a hundred or a thousand.
        round_one = draw.one((100, 100, 200, 300, 1000)) - draw.number(1, 6)
        small = draw.number(0, 110)
        first = draw.one((small, small, draw.number(0, 990), draw.number(0, 20), 1, round_one))
        return first, first + draw.number(2, 11)

    (a, b), key = draw.until_admitted(make, lambda made: "count {} {}".format(*made))
    ways = _TO if a == 1 and draw.chance(0.5) else _UP_TO
    question = phrased(draw, ways, **_numerals(draw, a, b))
    return one_turn("counting", key, question, ", ".join(map(str, range(a, b + 1))))


def _count_down(draw: Draw) -> Example:
    def make() -> tuple[int, int]:
        last = draw.one((draw.number(0, 110), draw.number(0, 990), 0, 1, 1))
        return last + draw.number(2, 10), last

    (a, b), key = draw.until_admitted(make, lambda made: "count {} {}".format(*made))
    question = phrased(draw, _FROM if b == 1 and draw.chance(0.5) else _DOWN_TO, **_numerals(draw, a, b))
    return one_turn("counting", key, question, ", ".join(map(str, range(a, b - 1, -1))))


def _numerals(draw: Draw, a: int, b: int) -> dict[str, int | str]:
    """The bounds, now and then in words, and the two that follow the first."""
    if max(a, b) < 100 and draw.chance(0.12):
        return {"a": in_words(a), "b": in_words(b), "c": in_words(a + 1), "d": in_words(a + 2)}
    return {"a": a, "b": b, "c": a + 1, "d": a + 2}
