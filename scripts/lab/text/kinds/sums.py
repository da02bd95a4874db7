"""Sums: small ones at once, large ones in writing, numbers in words, stories, and products of the small table."""

from ..example import Draw, Example, one_turn
from ..grammar import phrased
from ..tables.lists import ITEMS, NAMES

PLUS = (
    "[What is|What's|How much is|What does|Compute|Calculate|Work out|Solve] {a} + {b}[?|]", "{a} + {b}", "{a}+{b}",
    "{a}+{b}=", "{a} + {b} =[ ?|]", "[What is|What's|How much is|Calculate|Solve|Compute] {a}+{b}[?|]",
    "{a} plus {b}[|?]",
    "[What is|What's|How much is|What does|Tell me|Find|Compute|Calculate|Work out|Give me] {a} plus {b}[?|]",
    "[Add|Add up|Sum|Sum up] {a} and {b}[.|]", "Add {a} to {b}[.|]",
    "[What is|What's|Find|Give me|Compute|Calculate|Tell me|] [the sum|the total] of {a} and {b}[?|]",
    "Sum of {a} and {b}", "What do you get if you add {a} [and|to] {b}?",
    "What do {a} and {b} [make|add up to|give|sum to]?", "{a} plus {b} [equals|makes|is|is what|equals what][?|]",
    "What [does|do] {a} plus {b} [equal|make|give]?", "{a} and {b} [makes|make|together make] [what|how much]?",
    "If I add {a} and {b}, what do I get?", "{a} added to {b}[?|]", "[Increase|Raise] {a} by {b}[.|]",
    "What is {b} more than {a}?", "What's the result of {a} + {b}?", "[The result|Result|The answer] of {a} + {b}",
    "How many is {a} plus {b}?", "{a} + {b} is[?|]", "{a} + {b}?",
    "[请问|]{a}加{b}[等于多少|是多少|等于几|是几|得多少][?|]", "{a}加{b}",
    "[计算|算一下|算算|请计算]{a}[+|加]{b}[。|]", "{a}+{b}[等于几|等于多少|是多少]?", "{a} + {b} = ?",
    "{a}和{b}的和是多少?", "{a}与{b}相加[等于|是]多少?", "把{a}和{b}加起来。", "{a}[再|]加上{b}是多少?",
)  # fmt: skip
MINUS = (
    "[What is|What's|How much is|What does|Compute|Calculate|Work out|Solve] {a} - {b}[?|]", "{a} - {b}", "{a}-{b}",
    "{a}-{b}=", "{a} - {b} =[ ?|]", "[What is|What's|How much is|Calculate|Solve|Compute] {a}-{b}[?|]",
    "{a} minus {b}[|?]",
    "[What is|What's|How much is|What does|Tell me|Find|Compute|Calculate|Work out|Give me] {a} minus {b}[?|]",
    "[Subtract|Deduct|Take] {b} from {a}[.|]", "Take [away |]{b} from {a}[.|]", "Take {b} away from {a}[.|]",
    "{a} [take away|less|without] {b}[?|]",
    "[What is|What's|Find|Give me|Compute|Calculate|] the difference [between|of] {a} and {b}[?|]",
    "What do you get if you [subtract|take] {b} from {a}?", "{a} minus {b} [equals|makes|is|is what][?|]",
    "What [does|do] {a} minus {b} [equal|make|give]?", "If I take {b} from {a}, what [do I get|is left]?",
    "[Decrease|Reduce|Lower] {a} by {b}[.|]", "What is {b} less than {a}?", "What is left if you take {b} from {a}?",
    "What's the result of {a} - {b}?", "How many is {a} minus {b}?", "{a} - {b} is[?|]", "{a} - {b}?",
    "Subtracting {b} from {a} gives", "[请问|]{a}减{b}[等于多少|是多少|等于几|是几|得多少][?|]", "{a}减{b}",
    "[计算|算一下|算算|请计算]{a}[-|减]{b}[。|]", "{a}-{b}[等于几|等于多少|是多少]?", "{a} - {b} = ?",
    "{a}减去{b}[是|等于]多少?", "{a}和{b}的差是多少?", "从{a}中减去{b}。",
)  # fmt: skip
TIMES = (
    "[What is|What's|How much is|Compute|Calculate|] {a} [times|*|x|multiplied by] {b}[?|]", "{a} * {b}", "{a}*{b}",
    "{a} x {b}", "{a}x{b}", "{a} × {b}", "Multiply {a} [by|and|with] {b}[.|]", "{a} times {b}[?|]",
    "[What is|What's|Find|] the product of {a} and {b}[?|]", "{a} * {b} =[ ?|]",
    "[请问|]{a}[乘以|乘]{b}[等于多少|是多少|等于几][?|]", "{a}乘{b}", "计算{a}[乘|×|*]{b}[。|]",
)  # fmt: skip
# What one has and what becomes of it; a the first number, b the second.
_GAINS = (
    "{n} has {a} {x}s and [gets|buys|finds|receives|picks|bakes|wins|is given] {b} more. How many {x}s does {n} have[ "
    "now|]?",
    "I [have|had] {a} {x}s and [buy|get|find|bought|got|found] {b} more. How many [do I have|are there|{x}s do I have|"
    "have I got|do I have now]?",
    "[{n} has|I have] {a} {x}s. [She gets|He gets|I get|Then come] {b} more. How many [now|are there now|in all|"
    "altogether]?", "There are {a} {x}s and {b} [more come|are added]. How many [are there|{x}s are there now]?",
    "If I have {a} {x}s and you give me {b}, how many do I have?",
    "{n} has {a} {x}s and [I have|her friend has] {b}. How many [together|do we have together|in total]?",
    "[There are|I see|We have|In the box are] {a} [red|big|old|blue] {x}s and {b} [green|small|new|white] [{x}s|ones]. "
    "How many {x}s [are there|are that|is that][ altogether| in total| in all|]?",
    "{a} [people|children|birds|students|cars] [are|were] [on the bus|in the park|in the room|here|on the roof]. {b} "
    "more [come|arrive|get on|join|came]. How many are [there|there now|on it now]?",
    "[{n}|My sister|The baker|A boy] [read|wrote|made|sold|picked|baked] {a} {x}s [on Monday|in the morning|yesterday] "
    "and {b} [{x}s |][on Tuesday|in the evening|today]. How many [in total|altogether|{x}s in all]?",
    "[A|The] {x} costs {a} [euros|dollars] and [a|the] [book|hat|pen|lamp] costs {b}[ euros| dollars|]. [How "
    "much|What] [do they cost together|is the total|do I pay]?",
)  # fmt: skip
_LOSSES = (
    "{n} has {a} {x}s and [gives away|loses|sells|eats] {b}. How many {x}s [are left|does {n} have left|remain]?",
    "I [have|had] {a} {x}s and [lose|sell|give away|eat|lost|sold|gave away|ate|broke] {b}[ of them|]. How many [are "
    "left|do I have left|do I still have|remain|have I got left|have I got]?",
    "[{n} had|I had] {a} {x}s. {b} [broke|were lost|were eaten|were sold|are gone]. How many [are left|remain|are "
    "still there]?", "There are {a} {x}s and {b} are taken away. How many [are left|remain]?",
    "If I have {a} {x}s and give you {b}, how many [are left|do I have left]?",
    "{a} [people|children|birds|students|cars] [are|were] [on the bus|in the park|in the room|on a tree|on the roof]. "
    "{b} [leave|get off|fly away|go home|left|flew away]. How many [are left|remain|are still there|stay]?",
    "{n} [baked|made|bought|picked|had] {a} {x}s[. | and ][She gave|He gave|Then {n} gave|gave] {b} [of them |]to [her|"
    "his|a] [friend|brother|neighbour]. How many [are left|{x}s are left|does {n} still have]?",
    "[I have|{n} has|You have] {a} [euros|dollars|coins] and [spend|spends|pay|lose] {b}. How [much|many] [is|are] "
    "left?", "[A|The] box [has|holds] {a} {x}s. [I take|{n} takes] {b} [out|away]. How many are [left|still in it]?",
    "A [book|film|road] has {a} [pages|parts|miles]. {n} has [read|seen|done] {b}. How many are left?",
)  # fmt: skip
_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ZH_DIGITS = "零一二三四五六七八九"


def in_words(number: int) -> str:
    """A number to 9,999 as English words."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens] + (f"-{_ONES[ones]}" if ones else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, size)
    joined = " and " if rest < 100 else " "
    return f"{_ONES[count]} {name}" + (f"{joined}{in_words(rest)}" if rest else "")


def in_chinese(number: int) -> str:
    """A number to 9,999 in Chinese digits."""
    if number < 10:
        return _ZH_DIGITS[number]
    if number < 20:
        return "十" + (_ZH_DIGITS[number - 10] if number > 10 else "")
    size, name = next((size, name) for size, name in ((1000, "千"), (100, "百"), (10, "十")) if number >= size)
    count, rest = divmod(number, size)
    between = "零" * (0 < rest < size // 10) + "一" * (10 <= rest < 20)
    return _ZH_DIGITS[count] + name + between + (in_chinese(rest) if rest else "")


def small_sum(draw: Draw) -> Example:
    form = draw.number(0, 99)
    if form < 14:
        return _of_words(draw)
    if form < 28:
        return _story(draw)
    if form < 35:
        return _of_three(draw)
    if form < 49:
        return _product(draw)
    return plain_small_sum(draw)


def plain_small_sum(draw: Draw) -> Example:
    (a, sign, b), key = draw.until_admitted(lambda: _operands(draw, 99, 99), _sum_key)
    return _sum(draw, "small sums", key, a, sign, b, None)


def large_sum(draw: Draw) -> Example:
    of_words = draw.chance(0.15)
    (a, sign, b), key = draw.until_admitted(lambda: _large_operands(draw, 0.75 if of_words else 0.2), _sum_key)
    steps = columns(a, sign, b) if sign == "+" or a >= b else f"{b}>{a}\n" + columns(b, sign, a)
    if of_words:
        question, steps = _in_words(draw, a, sign, b), f"{a}{sign}{b}\n{steps}"
        return one_turn("large sums", key, question, a + b if sign == "+" else a - b, thinking=steps)
    return _sum(draw, "large sums", key, a, sign, b, steps)


def _large_operands(draw: Draw, round_share: float) -> tuple[int, str, int]:
    """Operands of which at least one has three or four digits; a share of these are round."""
    most = draw.one((999, 999, 999, 9999))
    a = _large(draw, most, round_share)
    form = draw.number(0, 3)
    if form < 2:
        b = _large(draw, draw.one((most, 999)), round_share)
    else:
        b = _medium(draw, most) if form == 2 else _small(draw)
    sign = draw.one("+-")
    if sign == "-" and draw.chance(0.85):
        return max(a, b), sign, min(a, b)
    return draw.one([(a, sign, b), (b, sign, a)])


def _large(draw: Draw, most: int, round_share: float) -> int:
    low = (most + 1) // 10
    return draw.number(1, 9) * low if draw.chance(round_share) else draw.number(low, most)


def _medium(draw: Draw, most: int) -> int:
    return draw.number(10, 999 if most > 999 else 99)


def _small(draw: Draw) -> int:
    return draw.number(1, 9)


def _operands(draw: Draw, most_a: int, most_b: int) -> tuple[int, str, int]:
    a, b = (draw.number(0, 9 if draw.chance(0.12) else most) for most in (most_a, most_b))
    return a, draw.one("+-"), b


def _sum_key(operands: tuple[int, str, int]) -> str:
    a, sign, b = operands
    return f"{min(a, b)}+{max(a, b)}" if sign == "+" else f"{a}-{b}"


def _sum(draw: Draw, kind: str, key: str, a: int, sign: str, b: int, thinking: str | None) -> Example:
    question = phrased(draw, PLUS if sign == "+" else MINUS, a=a, b=b)
    return one_turn(kind, key, question, a + b if sign == "+" else a - b, thinking=thinking)


def _of_words(draw: Draw) -> Example:
    """The operands in words; what is answered are digits."""
    most = draw.one((12, 20, 99))
    (a, sign, b), key = draw.until_admitted(lambda: _operands(draw, most, most), _sum_key)
    question = _in_words(draw, a, sign, b)
    return one_turn("small sums", key, question, a + b if sign == "+" else a - b)


def _in_words(draw: Draw, a: int, sign: str, b: int) -> str:
    """The question for this sum with its operands in words."""
    chinese = draw.chance(0.25)
    ways = [
        way
        for way in (PLUS if sign == "+" else MINUS)
        if way.isascii() != chinese and "{b}=" not in way and "+{b}" not in way and "-{b}" not in way
    ]
    words = in_chinese if chinese else in_words
    shown = [words(number) for number in (a, b)]
    question = phrased(draw, ways, a=shown[0], b=shown[1])
    if not chinese and draw.chance(0.15):
        return question.replace("-", " ") if " - " not in question else question
    return question


def _story(draw: Draw) -> Example:
    (a, sign, b), key = draw.until_admitted(lambda: _story_operands(draw), _sum_key)
    values = {"a": a, "b": b, "n": draw.one(NAMES), "x": draw.one(ITEMS)}
    question = phrased(draw, _GAINS if sign == "+" else _LOSSES, **values)
    return one_turn("small sums", key, question, a + b if sign == "+" else a - b)


def _story_operands(draw: Draw) -> tuple[int, str, int]:
    a, sign, b = draw.number(2, 50), draw.one("+-"), draw.number(2, 30)
    return (max(a, b), sign, min(a, b)) if sign == "-" else (a, sign, b)


def _of_three(draw: Draw) -> Example:
    """Three small numbers added, one after the other."""
    numbers, key = draw.until_admitted(lambda: [draw.number(1, 20) for _ in range(3)], lambda made: f"three {made}")
    a, b, c = numbers
    question = phrased(draw, _THREE, a=a, b=b, c=c)
    return one_turn("small sums", key, question, a + b + c, thinking=f"{a}+{b}={a + b}\n{a + b}+{c}={a + b + c}")


_THREE = (
    "{a} + {b} + {c}", "{a}+{b}+{c}", "{a} + {b} + {c} =[ ?|]", "[Add up|Sum up|Add|Sum] {a}, {b}[,|] and {c}[.|]",
    "[What do|How much do] {a}, {b} and {c} [make|give|add up to]?", "[What is|What's|] the [sum|total] of "
    "{a}, {b} and {c}[?|]", "Add {a} {b} {c}[.|]", "Add these [numbers|three|]: {a}, {b}, {c}[.|]",
    "[What is|What's|How much is|Calculate] {a} + {b} + {c}[?|]",
    "[What is|How much is|] {a} plus {b} plus {c}[?|]",
    "Add {a}, {b} and {c}[.|]", "[The sum|Sum] of {a}, {b} and {c}", "{a}加{b}加{c}[等于多少|是多少|]?",
)  # fmt: skip


def _product(draw: Draw) -> Example:
    """Products learnt by heart, like children do: the operands may be of either side, the phrasing decides."""
    a, b = draw.number(0, 10), draw.number(0, 10)
    spelled = in_words if draw.chance(0.15) else str
    question = phrased(draw, TIMES[:10] if spelled is in_words else TIMES, a=spelled(a), b=spelled(b))
    key = f"phrase {question.lower()}"
    return one_turn("small sums", key, question, a * b) if draw.admits(key) else _product(draw)


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
