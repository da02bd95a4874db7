"""Questions about numbers: sums, comparisons, sorting, counting."""

from .example import Draw, Example, asked
from .tables import ITEMS, WORDS, ZH_ITEMS
from .wording import worded

PLUS = (
    "What is {a} + {b}?", "{a} + {b} = ?", "{a}+{b}", "{a} + {b}", "Compute {a} + {b}.", "How much is {a} plus {b}?",
    "Add {a} and {b}.", "Add {a} to {b}.", "What's the sum of {a} and {b}?", "What is {a}+{b}?", "{a}+{b}=",
    "{a} plus {b}", "{a} plus {b}?", "What is {a} plus {b}?", "Sum of {a} and {b}", "Calculate {a}+{b}.",
    "{a}加{b}等于多少?", "{a}加{b}是多少?", "计算{a}+{b}。", "{a} + {b} 等于几?", "{a}+{b}=?", "{a}加{b}",
    "算一下{a}加{b}。",
)  # fmt: skip
MINUS = (
    "What is {a} - {b}?", "{a} - {b} = ?", "{a}-{b}", "{a} - {b}", "Compute {a} - {b}.", "How much is {a} minus {b}?",
    "Subtract {b} from {a}.", "Take {b} away from {a}.", "What's {a} minus {b}?", "What is {a}-{b}?", "{a}-{b}=",
    "{a} minus {b}", "{a} minus {b}?", "What is {a} minus {b}?", "{a} take away {b}", "Calculate {a}-{b}.",
    "{a}减{b}等于多少?", "{a}减{b}是多少?", "计算{a}-{b}。", "{a} - {b} 等于几?", "{a}-{b}=?", "{a}减{b}",
    "算一下{a}减{b}。",
)  # fmt: skip


def small_sum(draw: Draw) -> Example:
    (a, sign, b), key = draw.until_admitted(lambda: _operands(draw, 99, 99), _sum_key)
    return _sum(draw, "small sums", key, a, sign, b, None)


def large_sum(draw: Draw) -> Example:
    def make() -> tuple[int, str, int]:
        a, sign, b = _operands(draw, 999, 999 if draw.chance(0.8) else 99)
        a = max(a, 100)
        return (max(a, b), sign, min(a, b)) if sign == "-" else draw.one([(a, sign, b), (b, sign, a)])

    (a, sign, b), key = draw.until_admitted(make, _sum_key)
    return _sum(draw, "large sums", key, a, sign, b, columns(a, sign, b))


def _operands(draw: Draw, most_a: int, most_b: int) -> tuple[int, str, int]:
    a, b = (draw.number(0, 9 if draw.chance(0.12) else most) for most in (most_a, most_b))
    return a, draw.one("+-"), b


def _sum_key(operands: tuple[int, str, int]) -> str:
    a, sign, b = operands
    return f"{min(a, b)}+{max(a, b)}" if sign == "+" else f"{a}-{b}"


def _sum(draw: Draw, kind: str, key: str, a: int, sign: str, b: int, thinking: str | None) -> Example:
    question = worded(draw, PLUS if sign == "+" else MINUS, a=a, b=b)
    return asked(kind, key, question, a + b if sign == "+" else a - b, thinking=thinking)


def columns(a: int, sign: str, b: int) -> str:
    """A written sum, a line a digit from the right; what is carried or borrowed stands as a third operand."""
    lines, carried = [], 0
    while a or b or not lines:
        (a, top), (b, bottom) = divmod(a, 10), divmod(b, 10)
        tail = f"{sign}1" if carried else ""
        if sign == "+":
            value = top + bottom + carried
            lines.append(f"{top}+{bottom}{tail}={value}")
            carried = value // 10
        else:
            borrowed = top - bottom - carried < 0
            lines.append(f"{'1' if borrowed else ''}{top}-{bottom}{tail}={top + 10 * borrowed - bottom - carried}")
            carried = int(borrowed)
    return "\n".join(lines)


# --- comparisons -----------------------------------------------------------------------------------------------------

_LARGER = (
    "Which is larger, {a} or {b}?", "Which number is bigger: {a} or {b}?", "What is greater, {a} or {b}?",
    "Give me the larger of {a} and {b}.", "Bigger: {a} or {b}?", "Max of {a} and {b}", "The larger of {a} and {b}?",
    "{a} or {b}, which is bigger?", "What is more, {a} or {b}?", "Larger: {a}, {b}", "{a}和{b}哪个大?",
    "{a}和{b}中较大的数是哪个?", "哪个更大,{a}还是{b}?", "{a}和{b}谁大?",
)  # fmt: skip
_SMALLER = (
    "Which is smaller, {a} or {b}?", "Which number is less: {a} or {b}?", "What is smaller, {a} or {b}?",
    "Give me the smaller of {a} and {b}.", "Smaller: {a} or {b}?", "Min of {a} and {b}", "The smaller of {a} and {b}?",
    "{a} or {b}, which is smaller?", "What is less, {a} or {b}?", "Smaller: {a}, {b}", "{a}和{b}哪个小?",
    "{a}和{b}中较小的数是哪个?", "哪个更小,{a}还是{b}?", "{a}和{b}谁小?",
)  # fmt: skip
_IS_LARGER = (
    "Is {a} larger than {b}?", "Is {a} greater than {b}?", "Is {a} more than {b}?", "Is {a} bigger than {b}?",
    "{a} > {b}?", "Is {a} > {b}?", "{a}>{b}?", "{a} > {b}", "{a}比{b}大吗?", "{a}大于{b}吗?", "{a}>{b}吗?",
)  # fmt: skip
_IS_SMALLER = (
    "Is {a} smaller than {b}?", "Is {a} less than {b}?", "{a} < {b}?", "Is {a} < {b}?", "{a}<{b}?", "{a} < {b}",
    "{a}比{b}小吗?", "{a}小于{b}吗?", "{a}<{b}吗?",
)  # fmt: skip


def comparison(draw: Draw) -> Example:
    (a, b), key = draw.until_admitted(lambda: _unequal(draw), lambda pair: "compare {} {}".format(*sorted(pair)))
    larger = draw.chance(0.5)
    if draw.chance(0.6):
        question = worded(draw, _LARGER if larger else _SMALLER, a=a, b=b)
        return asked("comparisons", key, question, max(a, b) if larger else min(a, b))
    question = worded(draw, _IS_LARGER if larger else _IS_SMALLER, a=a, b=b)
    yes, no = ("Yes.", "No.") if question.isascii() else ("是的。", "不是。")
    return asked("comparisons", key, question, yes if (a > b) == larger else no)


def _unequal(draw: Draw) -> tuple[int, int]:
    while True:
        most = draw.one([9, 99, 999, 999])
        a = draw.number(0, most)
        # Near ones are the hard ones.
        b = draw.one([draw.number(0, most), draw.number(0, 999), a + draw.number(-20, 20), int(str(a)[::-1])])
        if a != b and 0 <= b <= 999:
            return a, b


# --- sorting ---------------------------------------------------------------------------------------------------------

_UP = (
    "Sort these numbers: {list}", "Sort {list} from smallest to largest.", "Put these in ascending order: {list}",
    "Sort in increasing order: {list}", "Sort {list}", "Sort: {list}", "Sort {list}.", "Order {list}", "Order: {list}",
    "Put in order: {list}", "Sort the list {list}", "{list} in ascending order", "Can you sort {list}?",
    "把{list}从小到大排列。", "从小到大排序:{list}", "将这些数从小到大排列:{list}", "排序:{list}", "给{list}排序",
)  # fmt: skip
_DOWN = (
    "Sort {list} from largest to smallest.", "Put these in descending order: {list}",
    "Sort in decreasing order: {list}", "Sort descending: {list}", "{list} in descending order",
    "Largest first: {list}", "把{list}从大到小排列。", "从大到小排序:{list}", "将这些数从大到小排列:{list}",
)  # fmt: skip
# How the numbers are told apart; the first is how they are answered.
_BETWEEN = (", ", ", ", ", ", ",", " ")
# The greatest that a list's numbers may be, each one's drawn by itself: short ones stand among longer ones, too.
_MOSTS = ((9,), (99,), (99,), (9, 99), (9, 99), (9, 99, 999), (99, 999))


def sorting(draw: Draw) -> Example:
    numbers, key = draw.until_admitted(lambda: _numbers(draw), lambda made: f"sort {sorted(made)}")
    down = draw.chance(0.35)
    question = worded(draw, _DOWN if down else _UP, list=draw.one(_BETWEEN).join(map(str, numbers)))
    return asked("sorting", key, question, _BETWEEN[0].join(map(str, sorted(numbers, reverse=down))))


def _numbers(draw: Draw) -> list[int]:
    """Three or four, no two alike."""
    mosts, count, numbers = draw.one(_MOSTS), draw.number(3, 4), list[int]()
    while len(numbers) < count:
        if (number := draw.number(0, draw.one(mosts))) not in numbers:
            numbers.append(number)
    return numbers


# --- counting --------------------------------------------------------------------------------------------------------


def counting(draw: Draw) -> Example:
    return draw.one([_count_letter, _count_letter, _count_letters, _count_items, _count_up])(draw)


_ONSETS = (*"bcdfghjklmnprstvwyz", "bl", "br", "ch", "cl", "cr", "dr", "fl", "gr", "pl", "pr", "qu", "sh", "st",
           "str", "th")  # fmt: skip
_VOWELS = (*"aeiou", *"aeiou", "ai", "ea", "ee", "oo", "ou")
_CODAS = ("", "", "", *"dklmnprst", "ck", "ll", "ng", "nt", "ss", "st")


def spelled_word(draw: Draw) -> str:
    """A word whose letters matter: one that exists, or one put together."""
    return draw.one(WORDS) if draw.chance(0.5) else made_up_word(draw)


def made_up_word(draw: Draw) -> str:
    return "".join(draw.one(_ONSETS) + draw.one(_VOWELS) + draw.one(_CODAS) for _ in range(draw.number(1, 2)))


_LETTER = (
    "How many times is the letter {letter} in {word}?", "How many {letter} are in the word {word}?",
    "Count the letter {letter} in {word}.", "How often does {letter} occur in {word}?", "How many {letter} in {word}?",
    "How many {letter}'s are in {word}?", "Count {letter} in {word}.", "{word}里有几个{letter}?",
    "单词{word}中有几个字母{letter}?", "{word}有几个{letter}?",
)  # fmt: skip
_LETTERS = (
    "How many letters has the word {word}?", "How many letters are in {word}?", "Count the letters of {word}.",
    "How long is the word {word}?", "Count the letters in {word}.", "How many letters in {word}?", "Length of {word}",
    "Letters in {word}?", "How many letters does {word} have?", "{word}有几个字母?", "单词{word}一共有多少个字母?",
    "{word}有多少个字母?",
)  # fmt: skip
_LISTED = (
    "How many words are in this list: {list}?", "Count the items: {list}", "How many things are these: {list}?",
    "How many items does this list have: {list}?", "Count: {list}", "How many: {list}?", "Count these: {list}",
)  # fmt: skip
_ZH_LISTED = (
    "{list},一共有几个?", "数一数有几样东西:{list}", "这个列表有几个词:{list}?", "数一数:{list}",
)  # fmt: skip
_UP_TO = (
    "Count from {a} to {b}.", "Count {a} to {b}.", "List the numbers from {a} to {b}.", "Numbers from {a} to {b}",
    "Count up from {a} to {b}.", "从{a}数到{b}。", "数数,从{a}到{b}。",
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
    return asked("counting", key, worded(draw, _LETTER, letter=letter, word=word), seen, thinking="\n".join(steps))


def _count_letters(draw: Draw) -> Example:
    word, key = draw.until_admitted(lambda: spelled_word(draw), lambda made: f"length {made}")
    steps = "\n".join(f"{letter} {place}" for place, letter in enumerate(word, 1))
    return asked("counting", key, worded(draw, _LETTERS, word=word), len(word), thinking=steps)


def _count_items(draw: Draw) -> Example:
    chinese = draw.chance(0.4)
    pool = ZH_ITEMS if chinese else ITEMS
    words, key = draw.until_admitted(lambda: draw.some(pool, draw.number(2, 8)), lambda made: f"items {made}")
    question = worded(draw, _ZH_LISTED if chinese else _LISTED, list=("、" if chinese else ", ").join(words))
    steps = "\n".join(f"{place} {word}" for place, word in enumerate(words, 1))
    return asked("counting", key, question, len(words), thinking=steps)


def _count_up(draw: Draw) -> Example:
    def make() -> tuple[int, int]:
        first = draw.number(0, 90)
        return first, first + draw.number(2, 9)

    (a, b), key = draw.until_admitted(make, lambda made: "count {} {}".format(*made))
    return asked("counting", key, worded(draw, _UP_TO, a=a, b=b), ", ".join(map(str, range(a, b + 1))))
