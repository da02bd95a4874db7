"""Numbers beside one another: which is larger, whether it is, even or odd, the next one, and whole lists in order."""

from ..example import Draw, Example, one_turn
from ..grammar import phrased
from .sums import in_words

_LARGE, _SMALL = "[larger|bigger|greater|higher|more]", "[smaller|less|lower|fewer]"
_LARGEST, _SMALLEST = "[largest|biggest|greatest|highest|maximum]", "[smallest|lowest|least|minimum]"


def _which(more: str, most: str, extreme: str, verb: str, chinese: str) -> tuple[str, ...]:
    return (
        f"[Which|What] [is|number is|one is|of these is|of the two is] {more}[,|:] {{a}} or {{b}}?",
        f"{more}: {{a}} or {{b}}?", f"{extreme} of {{a}} and {{b}}",
        f"[Give me|Tell me|Name|Say|Find|Pick|Choose|Show me|What is|] the {more} [of|one of|number of|number, ] "
        "{a} [and|or] {b}",
        f"{{a}} or {{b}}[, |: |? |; |; ][which|what|which one|which number] is {more}?", f"{more}: {{a}}, {{b}}",
        f"Between {{a}} and {{b}}, which [is|one is|number is] {more}?",
        f"{{a}} [vs|versus|vs.|or] {{b}}[, | - |: |; ]which [is|one is] {more}?",
        f"Which [of {{a}} and {{b}}|of the numbers {{a}} and {{b}}] is {more}?", f"What is {more}, {{a}} or {{b}}?",
        f"[Compare|I have] {{a}} and {{b}}[:|.|,] [which|which one|what] is {more}?",
        f"Which is the {most} [of|number of] {{a}} and {{b}}?", f"[Is|What about] {{a}} or {{b}} {more}?",
        f"Which number is {more} [- |— |... |]{{a}} or {{b}}?", f"{{a}} {{b}} which [is|one is] {more}[?|]",
        f"{verb}({{a}}, {{b}})",
        f"[请问|]{{a}}和{{b}}[哪个|谁|哪一个|哪个数][更|比较|]{chinese}[?|]",
        f"{{a}}和{{b}}中较{chinese}的数是[哪个|多少]?",
        f"哪个[数|]更{chinese},{{a}}还是{{b}}?",
        f"{{a}}与{{b}}相比,哪个[更|]{chinese}?", f"{{a}}和{{b}}[哪个|谁]{chinese}?",
        f"[说出|告诉我]{{a}}和{{b}}中{chinese}的[那个|]。",
    )  # fmt: skip


_LARGER = _which(_LARGE, _LARGEST, "[Max|Maximum]", "max", "大")
_SMALLER = _which(_SMALL, _SMALLEST, "[Min|Minimum]", "min", "小")


def _whether(more: str, sign: str, chinese: str) -> tuple[str, ...]:
    return (
        f"Is {{a}} {more} than {{b}}?", f"{{a}} {sign} {{b}}[?|]", f"{{a}}{sign}{{b}}?", f"Is {{a}} {sign} {{b}}?",
        f"Is [the number |]{{a}} {more} than [the number |]{{b}}[, yes or no|]?",
        f"[True or false|Yes or no|True|Right]: is {{a}} {more} than {{b}}?",
        f"Would you say {{a}} is {more} than {{b}}?",
        f"{{a}} is {more} than {{b}}, [right|yes or no|correct|isn't it]?",
        f"Is it true that {{a}} is {more} than {{b}}?", f"{{a}}比{{b}}{chinese}吗?", f"{{a}}{chinese}于{{b}}吗?",
        f"{{a}}{sign}{{b}}吗?", f"{{a}}是不是比{{b}}{chinese}?",
    )  # fmt: skip


_IS_LARGER = _whether("[larger|greater|more|bigger|higher]", ">", "大")
_IS_SMALLER = _whether("[smaller|less|lower]", "<", "小")


def comparison(draw: Draw) -> Example:
    form = draw.number(0, 99)
    if form < 14:
        return _parity(draw)
    if form < 24:
        return _extreme(draw)
    if form < 30:
        return _neighbour(draw)
    if form < 34:
        return _equality(draw)
    return _of_two(draw)


def _of_two(draw: Draw) -> Example:
    (a, b), key = draw.until_admitted(lambda: _unequal(draw), lambda pair: "compare {} {}".format(*sorted(pair)))
    larger = draw.chance(0.5)
    if draw.chance(0.6):
        question = phrased(draw, _LARGER if larger else _SMALLER, a=a, b=b)
        return one_turn("comparisons", key, question, max(a, b) if larger else min(a, b))
    as_words = a < 100 and b < 100 and draw.chance(0.15)
    ways = [
        way for way in (_IS_LARGER if larger else _IS_SMALLER) if not as_words or (way.isascii() and " than " in way)
    ]
    question = phrased(draw, ways, a=in_words(a) if as_words else a, b=in_words(b) if as_words else b)
    return one_turn("comparisons", key, question, _yes_or_no(question, (a > b) == larger))


def _yes_or_no(question: str, is_so: bool) -> str:
    return ("Yes." if is_so else "No.") if question.isascii() else ("是的。" if is_so else "不是。")


def _unequal(draw: Draw) -> tuple[int, int]:
    while True:
        most = draw.one([9, 99, 99, 999, 999, 9999])
        a = draw.number(0, most)
        # Near ones are the hard ones.
        b = draw.one([draw.number(0, most), draw.number(0, 999), a + draw.number(-20, 20), int(str(a)[::-1])])
        if a != b and 0 <= b <= 9999:
            return a, b


_WHETHER_EVEN = ("Is {a} [even|an even number][?|]", "Is the number {a} even?", "{a}[ is|:] even?",
    "Is {a} [divisible by 2|divisible by two]?",
                 "{a}是偶数吗?", "{a}是双数吗?")  # fmt: skip
_WHETHER_ODD = (
    "Is {a} [odd|an odd number][?|]", "Is the number {a} odd?", "{a}[ is|:] odd?", "{a}是奇数吗?", "{a}是单数吗?",
)  # fmt: skip
_WHICH_PARITY = (
    "Is {a} [even or odd|odd or even|an even or an odd number|an odd or even number]?",
    "{a}: [even or odd|odd or even]?", "{a}, [odd or even|even or odd]?", "[Even or odd|Odd or even][: |, |? ]{a}",
    "{a} [odd or even|even or odd][?|]", "{a}是奇数还是偶数?", "{a}是偶数还是奇数?",
)  # fmt: skip


def _parity(draw: Draw) -> Example:
    a, key = draw.until_admitted(lambda: draw.number(0, draw.one((9, 99, 999))), lambda made: f"parity {made}")
    form = draw.number(0, 2)
    question = phrased(draw, (_WHETHER_EVEN, _WHETHER_ODD, _WHICH_PARITY)[form], a=a)
    if form < 2:
        return one_turn("comparisons", key, question, _yes_or_no(question, a % 2 == form))
    names = ("Even", "Odd") if question.isascii() else ("偶数", "奇数")
    return one_turn("comparisons", key, question, names[a % 2])


def _most(extreme: str, verb: str, chinese: str) -> tuple[str, ...]:
    return (
        f"[Which|What] [is|number is|one is|of these is|of these numbers is] the {extreme}[:|,|] {{list}}[?|]",
        f"[The|] {extreme} [of|number of|number in|in] {{list}}", f"{verb} {{list}}",
        f"[Find|Give me|Tell me|Name|Pick|Show me|What is] the {extreme} [number|one] [of|in|from|among] [these: |"
        "this list: |the list ||]{list}", f"{{list}}: which is the {extreme}?", f"Which is {extreme}: {{list}}?",
        f"{{list}}[中|里]最{chinese}的[数|]是[哪个|多少]?", f"[哪个|哪个数]最{chinese}:{{list}}?",
        f"最{chinese}的数是哪个:{{list}}?",
    )  # fmt: skip


_LARGEST_OF, _SMALLEST_OF = (
    _most(_LARGEST, "[Max of|Max|Maximum]", "大"),
    _most(_SMALLEST, "[Min of|Min|Minimum]", "小"),
)


def _extreme(draw: Draw) -> Example:
    numbers, key = draw.until_admitted(lambda: _numbers(draw), lambda made: f"sort {sorted(made)}")
    largest = draw.chance(0.5)
    question = phrased(draw, _LARGEST_OF if largest else _SMALLEST_OF, list=_listed(draw, numbers))
    return one_turn("comparisons", key, question, max(numbers) if largest else min(numbers))


_SUCCESSOR = (
    "[What|Which] [number |]comes [right |]after {a}?", "[What is|What's] the [next number|number] after {a}?",
    "[Number|The number] after {a}", "What comes next after {a}?", "What follows {a}?",
    "{a}后面是[几|多少]?", "{a}的下一个数是多少?",
)  # fmt: skip
_PREDECESSOR = (
    "[What|Which] [number |]comes [right |]before {a}?", "[What is|What's] the number before {a}?",
    "[Number|The number] before {a}", "What precedes {a}?", "{a}前面是[几|多少]?", "{a}的前一个数是多少?",
)  # fmt: skip


def _neighbour(draw: Draw) -> Example:
    a, key = draw.until_admitted(lambda: draw.number(1, draw.one((20, 99, 999))), lambda made: f"next {made}")
    up = draw.chance(0.6)
    return one_turn("comparisons", key, phrased(draw, _SUCCESSOR if up else _PREDECESSOR, a=a), a + 1 if up else a - 1)


_EQUAL = (
    "Is {a} [equal to|the same as|=|==] {b}?", "Are {a} and {b} [equal|the same|the same number]?", "{a} == {b}",
    "{a} = {b}?", "{a}[和|与]{b}相等吗?", "{a}等于{b}吗?",
)  # fmt: skip


def _equality(draw: Draw) -> Example:
    (a, b), key = draw.until_admitted(lambda: _unequal(draw), lambda pair: "compare {} {}".format(*sorted(pair)))
    b = a if draw.chance(0.5) else b
    question = phrased(draw, _EQUAL, a=a, b=b)
    return one_turn("comparisons", key, question, _yes_or_no(question, a == b))


# --- sorting ---------------------------------------------------------------------------------------------------------

_SORT = "[Sort|Order|Arrange|Rank|Put in order|Organize|Organise|Line up|Reorder]"
_THESE = (
    "[these|these numbers|the numbers|the following|the following numbers|this list|the list|the following list|"
    "my numbers|them]"
)
_RISING = (
    "[from smallest to largest|from small to large|from low to high|from lowest to highest|in ascending order|"
    "ascending|in increasing order|smallest first|from least to greatest|"
    "smallest to largest|low to high|from the smallest to the largest|upwards|with the smallest first|from small to "
    "big|small -> big|low -> high|smallest to biggest|lowest first|from smallest to biggest|lowest to highest|"
    "from least to most|so that the smallest comes first|the smallest first|from the lowest to the highest|"
    "from little to big|increasing|in order from smallest to largest|starting with the smallest|in rising order|by "
    "size|in numerical order|in the right order|in order]"
)
_FALLING = (
    "[from largest to smallest|from large to small|from high to low|from highest to lowest|in descending order|"
    "descending|in decreasing order|largest first|from greatest to least|"
    "largest to smallest|high to low|from the largest to the smallest|downwards|with the largest first|from big to "
    "small|big -> small|high -> low|biggest to smallest|biggest first|from biggest to smallest|highest first|"
    "from most to least|so that the largest comes first|the biggest first|from the highest to the lowest|"
    "from big to little|decreasing|in order from largest to smallest|starting with the largest|in falling order|in "
    "reverse order of size|highest to lowest|greatest first|in reverse numerical order]"
)


def _sorts(how: str, chinese: str) -> tuple[str, ...]:
    return (
        f"{_SORT} {_THESE} {how}: {{list}}", f"{_SORT} {{list}} {how}[.|]", f"{_SORT} {how}: {{list}}",
        f"{{list}} {how}", f"{_SORT} the numbers {{list}} {how}[.|]",
        f"Put {_THESE} {how}: {{list}}", f"Put {{list}} {how}[.|]",
        f"{{list}}[: |, |. |; ]{_SORT} [them |these |]{how}[.|]",
        f"[Write|List|Give me|Show|Print] {_THESE} {how}: {{list}}", f"[Write|List|Show|Give me] {{list}} {how}[.|]",
        f"{_SORT} {{list}}[ for me|][. |, |? | - |; ]{how}[.| please|]",
        f"{_SORT} {_THESE}: {{list}}[. |, | - ]{how}[ please|]",
        f"[How would you sort|What is|What's] {{list}} {how}?", f"{how}: {{list}}",
        f"I have [the numbers |]{{list}}. {_SORT} them {how}[.|]", f"{_SORT} {_THESE}, {how}: {{list}}",
        f"{_SORT} {{list}}, {how}[.|]",
        f"{_SORT} {{list}} ({how})", f"{_SORT} {_THESE} ({how}): {{list}}", f"{{list}} ({how})",
        f"{_SORT} {_THESE} {{list}} ({how})", f"[Sorted|Ordered] {how}: {{list}}", f"Place {{list}} {how}[.|]",
        f"[Put|Place] the numbers {{list}} {how}[.|]", f"{_SORT} [it|them] {how}: {{list}}",
        f"[把|将|请把|请将]{{list}}[按|]{chinese}[排列|排序|排好|的顺序排列][。|]", f"{chinese}[排序|排列][:|]{{list}}",
        f"将这些数{chinese}[排列|排序]:{{list}}", f"{{list}}{chinese}[排列|排序|怎么排][。|]",
        f"[按|]{chinese}的顺序排列{{list}}",
    )  # fmt: skip


_UP = (
    *_sorts(_RISING, "[从小到大|由小到大|按升序|升序]"), f"{_SORT} {_THESE}: {{list}}", f"{_SORT} {{list}}[.|]",
    f"{_SORT}: {{list}}", f"Put {_THESE} in order: {{list}}", "Put {list} in order[.|]",
    f"{_SORT} the numbers {{list}}", f"{_SORT} [this list|the list] {{list}}", "排序:{list}", "给{list}排序",
    "把{list}[排序|排列|排好]", "对{list}进行排序", "What is {list} sorted?", "[Sorted|In order]: {list}",
)  # fmt: skip
_DOWN = _sorts(_FALLING, "[从大到小|由大到小|按降序|降序]")
# How the numbers are told apart; the first is how they are answered.
_BETWEEN = (", ", ", ", ", ", ", ", ",", " ", " ", "; ", " , ")
# The greatest that a list's numbers may be, each one's drawn by itself: short ones stand among longer ones, too.
_MOSTS = ((9,), (20,), (99,), (99,), (9, 99), (9, 99), (9, 99, 999), (99, 999), (9, 99, 999, 9999))


def sorting(draw: Draw) -> Example:
    numbers, key = draw.until_admitted(lambda: _numbers(draw), lambda made: f"sort {sorted(made)}")
    down = draw.chance(0.45)
    question = phrased(draw, _DOWN if down else _UP, list=_listed(draw, numbers))
    return one_turn("sorting", key, question, _BETWEEN[0].join(map(str, sorted(numbers, reverse=down))))


def _listed(draw: Draw, numbers: list[int]) -> str:
    between = draw.one(_BETWEEN)
    text = between.join(map(str, numbers))
    form = draw.number(0, 9)
    if form == 0:
        return f"[{text}]"
    if form < 3 and between in (", ", " "):
        head, _, last = text.rpartition(between)
        return f"{head}{draw.one((' and ', ', and '))}{last}"
    return text


def _numbers(draw: Draw) -> list[int]:
    """Three to six, now and then two, hardly any two alike."""
    mosts, count, numbers = draw.one(_MOSTS), draw.one((2, 3, 3, 3, 4, 4, 4, 5, 5, 6)), list[int]()
    while len(numbers) < count:
        number = draw.number(0, draw.one(mosts))
        if number not in numbers or draw.chance(0.05):
            numbers.append(number)
    return numbers
