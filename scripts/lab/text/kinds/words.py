"""Words and texts: copied, spelled, and turned round."""

from ..example import LETTER_GAP, Draw, Example, one_turn
from ..grammar import expanded, phrased
from ..tables.lists import CITIES, ITEMS, NAMES, ZH_CITIES, ZH_ITEMS, ZH_NAMES
from ..tables.vocabulary import SMALL_WORDS, WORDS, chinese_word, spelled_word
from .comparing import comparison
from .facts import fact
from .greetings import SAID
from .refusals import refusal
from .sums import small_sum

# --- copying ---------------------------------------------------------------------------------------------------------

_COPY = (
    "[Repeat|Copy|Echo|Say|Write|Print|Output|Type|Type out|Write out|Write down|Say out loud|"
    "Reproduce|Return|Reply with|Respond with|Answer with]"
)
_REPEAT = (
    "[Can|Could|Would] you [repeat|copy|say|write down|echo|type] [the following|this|these words|after me][?|:] "
    "{text}", "[Type|Print|Write|Say|Echo|Output] [the word|the words|the text|the sentence|this word] {text}",
    "[I want you to|Please|You have to|Now] [say|write|repeat|type|echo]: {text}",
    "[Say|Echo|Type|Write|Repeat] {text}", "[Write|Note|Put] down [this|the following|exactly this]: {text}",
    "[Repeat my words|Repeat it|Copy it]: {text}", "[Send|Hand|Write|Echo] [this|it] back[ to me|]: {text}",
    "[Show|Send|Bring] me [the line|this line|the sentence] [again|back|once more]: {text}",
    "[Output|Print|Write] [the following words|these words|this] and nothing [else|more]: {text}",
    "[Repeat|Say] after me: {text}", f"{_COPY}: {{text}}",
    f"{_COPY} [this|the following|this text|these words|the "
    "text|this sentence|exactly this|the following text|just this|only this]: {text}",
    f"{_COPY} [exactly|just|only]: {{text}}", "[Repeat|Copy|Echo|Say] {text}",
    f"{_COPY} [this|the following|this text] [exactly|once more|again|back|back to me|word for word|as it is|"
    "unchanged|without changes]: {text}", "[Just|Now|Simply] say {text}",
    f"{_COPY} [the word|the words|the text|the phrase|the sentence]: {{text}}",
    "[Repeat|Say|Copy] the [word|words|phrase] {text}", "[Can|Could] you [repeat|copy|say|write][ this|]: {text}",
    "Can you say {text}", "[Repeat|Say|Write] [what I say|what I write|my words]: {text}",
    "Say it back[ to me|]: {text}", "[My text|Here is a text|Text to copy|Copy this down]: {text}",
    "[Please repeat|Please copy|Please say|Please write]: {text}", f"{_COPY} \"{{text}}\"", f"{_COPY} '{{text}}'",
    f"{_COPY} [this|exactly|after me]: \"{{text}}\"", "[重复|复述|照抄|抄写|原样输出|跟我说|说|写|输出|跟我读]:{text}",
    "[重复|复述]一遍[:|]{text}", "照抄一遍:{text}", "请[原样输出|重复|复述|照抄|跟我说]:{text}",
    "[重复|说|跟我说]{text}", "[重复|照抄|复述][这句话|下面的话|以下内容|这段话]:{text}",
)  # fmt: skip


def copying(draw: Draw) -> Example:
    text, key = draw.until_admitted(lambda: _text_to_copy(draw), lambda made: f"copy {made}")
    return one_turn("copying", key, phrased(draw, _REPEAT, text=text), text)


def _text_to_copy(draw: Draw) -> str:
    form = draw.number(0, 13)
    if form == 0:
        return "".join(str(draw.number(0, 9)) for _ in range(draw.number(3, 10)))
    if form > 11:
        return _chinese_sentence(draw)
    if form == 1:
        return "".join(draw.some(ZH_ITEMS, draw.number(2, 5)))
    if form == 2:  # what would get another answer if it were not to be copied
        return expanded(draw, draw.one(draw.one(SAID).said)) if draw.chance(0.4) else _other_question(draw)
    if form == 3:
        return " ".join(_token(draw) for _ in range(draw.number(1, 4)))
    if form == 4:
        text = "".join(draw.one("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.number(3, 8)))
        return text.upper() if draw.chance(0.3) else text
    words = [
        draw.one((*SMALL_WORDS, *SMALL_WORDS, *NAMES, *CITIES[:40])) if draw.chance(0.35) else _word(draw, form)
        for _ in range(draw.number(1, 7))
    ]
    if draw.chance(0.15):
        words.insert(draw.number(0, len(words)), str(draw.number(1, draw.one((20, 999, 9999)))))
    return _finished(draw, words)


def _other_question(draw: Draw) -> str:
    """A question of another kind, or a statement."""
    kind = draw.one((refusal, fact, small_sum, comparison, refusal))
    text = str(kind(draw).messages[-1]["content"]).strip()
    return text if len(text) < 60 else text[:60].rpartition(" ")[0] or text[:30]


def _chinese_sentence(draw: Draw) -> str:
    words = [draw.one((*ZH_ITEMS, *ZH_NAMES, *"我你他的是在有不和了天好很")) for _ in range(draw.number(0, 4))]
    words += [chinese_word(draw) for _ in range(draw.number(1, 4))]
    # Some characters come twice in a row, as in many a word.
    words += [draw.one("天人好常看试谢爸妈哥星刚慢") * 2 for _ in range(draw.one((0, 0, 1)))]
    draw.random.shuffle(words)
    between = draw.one(("", "", "", ",", "，"))
    return between.join(words) + draw.one(("", "", "。", "！"))


def _word(draw: Draw, form: int) -> str:
    return draw.one(WORDS) if form < 9 else spelled_word(draw)


def _token(draw: Draw) -> str:
    """A mark of letters and digits, as codes and versions are."""
    word = spelled_word(draw)
    number = draw.number(0, 999)
    return draw.one(
        (f"{word}{number}", f"{word.upper()}-{number}", f"{word}_{spelled_word(draw)}", str(number), f"{number}{word}")
    )


def _finished(draw: Draw, words: list[str]) -> str:
    """A sentence, a title, a shout or just the words."""
    text = (", " if draw.chance(0.12) else " ").join(words)
    form = draw.number(0, 9)
    if form < 3:
        return text[0].upper() + text[1:] + draw.one((".", ".", "!", "?", ""))
    if form == 3:
        return text.upper()
    if form == 4:
        return " ".join(map(str.capitalize, words))
    return text + draw.one(("", "", "", "!", "."))


# --- spelling and reversing ------------------------------------------------------------------------------------------

_BACKWARDS = (
    "[Reverse|Flip|Invert|Turn around|Mirror] [the word |the string |the text |the letters of |]{text}[.|]",
    "[Write|Spell|Say|Type|Print|Read] [the word |]{text} [backwards|backward|in reverse|reversed|from back to front|"
    "from right to left|the other way round|back to front|in reverse order][.|]",
    "What is {text} [reversed|backwards|backward|spelled backwards|in reverse|written backwards|when reversed]?",
    "[Reverse|Flip|Backwards|Reversed|Mirror|Invert]: {text}",
    "{text} [backwards|reversed|backward|in reverse|spelled backwards|the other way round]",
    "[Reverse|Flip|Invert] [this|this word|the following|the following word|the word|the string|this string|the "
    "letters|it]: {text}", "What's {text} [backwards|reversed|spelled backwards]?",
    "[Can|Could] you [reverse|flip|turn around] [the word |]{text}?",
    "How do you [spell|write|say] {text} [backwards|backward|in reverse]?",
    "[Turn|Read] {text} [around|backwards|round][.|]",
    "[Give me|Show me|Tell me|I want|Say] {text} [backwards|reversed|in reverse][.|]",
    "[Give me|Show me|What is] the [reverse|reversal|mirror image] of [the word |]{text}",
    "[The reverse|Reverse] of {text}", "If you read {text} backwards, what do you get?",
    "[Reverse|Flip] the [letters|letters in|order of the letters in|characters of|spelling of] {text}",
    "[Reverse|Flip|Spell backwards] \"{text}\"", "[Reverse|Write] '{text}' [backwards|]",
    "[Start with the last letter and|From the last letter to the first:] write {text}",
    "[Put|Write] the letters of {text} in reverse order[.|]", "{text}, [but |]backwards",
    "[Turn around|Flip|Reverse|Invert] {text}[, | ][starting|beginning] with the last letter[.|]",
    "[Write|Say|Spell|Give me] {text} with the last letter first[.|]", "{text} in the mirror[, please|]",
    "[How does|What does] {text} look like [in a mirror|read backwards]?",
    "[I want|I need|Show me] the word {text} [turned around|reversed|backwards][, letter by letter|][.|]",
    "[把|将|请把]{text}[倒过来|反过来|倒着][写|]。", "{text}[倒过来|反过来][是什么|怎么写]?",
    "[反转|倒写|翻转][:|]{text}", "反转[单词|字符串|][:|]{text}。", "[倒着|反着]写{text}",
    "{text}[倒着|反着][写|拼]是什么?",
)  # fmt: skip
_NUMBER_BACKWARDS = (
    "[Read|Write|Say|Type] [the number |the digits |]{text} [from right to left|from the right|from behind|from the "
    "end|from back to front][.|]", "[The digits of|The number] {text} [from right to left|backwards|in reverse order]",
    "[Turn|Flip|Swap] the digits of {text}[ around|][.|]", "[Last digit first|From the last digit on]: {text}",
)  # fmt: skip
_LIST = "[list|words|items|sequence|list of words|order of these|order of]"
_LIST_BACKWARDS = (
    f"[Reverse|Flip|Invert|Turn around] [this|the|these] {_LIST}: {{text}}",
    f"[Put|Write|Give me|Show] [this|these|the] {_LIST} in reverse[ order|]: {{text}}",
    "[List|Write|Say|Put] these [backwards|in reverse order|in the opposite order|from last to first|back to front]: "
    "{text}", "Reverse the [list|order of] {text}", "[Reverse|Flip]: {text}", "[Reverse|Flip] {text}",
    "{text} [backwards|in reverse order|reversed]", "{text}: reverse [the order|the list|this]",
    "[Last first|From last to first|Reverse order|Backwards]: {text}",
    "[Say|Write|Read|List] the list backwards: {text}", "[把|将]这个列表[倒过来|反过来]:{text}",
    "[倒序|逆序|反向][列出|排列]:{text}", "反转[列表|][:|]{text}", "[倒过来|反过来]说:{text}",
)  # fmt: skip
_SPELL = (
    "[Spell|Spell out] [the word |]{text}[.|]", "How do you spell [the word |]{text}?",
    "How is [the word |]{text} spelled?", "[Spell|Spelling]: {text}",
    "[Write|Say|List|Give me|Name|What are] the letters [of|in] [the word |]{text}[.|]",
    "[Spell|Write] {text} letter by letter[.|]", "What is the spelling of {text}?", "[The letters|Letters] of {text}",
    "[Split|Break] {text} into letters[.|]", "{text}怎么拼[写|]?", "拼写{text}。",
)  # fmt: skip
_FIRST = (
    "[What|Which] is the first letter [of|in] [the word |]{text}?", "[The first|First] letter of {text}",
    "[What|Which] letter does {text} [start|begin] with?", "{text}的第一个字母是什么?",
)  # fmt: skip
_LAST = (
    "[What|Which] is the last letter [of|in] [the word |]{text}?", "[The last|Last] letter of {text}",
    "[What|Which] letter does {text} end with?", "{text}的最后一个字母是什么?",
)  # fmt: skip


def reversing(draw: Draw) -> Example:
    form = draw.number(0, 11)
    if form < 2:
        return _reversed_list(draw)
    if form == 2:
        return _spelled(draw)
    if form == 3:
        return _end_letter(draw)
    is_number = form < 6
    make = (
        (lambda: _digits(draw)) if is_number else (lambda: spelled_word(draw) if draw.chance(0.9) else _letters(draw))
    )
    text, key = draw.until_admitted(make, lambda made: f"reverse {made}")
    if not is_number and (shout := draw.number(0, 9)) < 2:
        text = text.upper() if shout else text.capitalize()
    # Digits are tokens already; of a word the letters have to be called up first.
    thinking = None if is_number else " ".join(text)
    answer = text[::-1] if is_number else LETTER_GAP.join(text[::-1])
    ways = [*_NUMBER_BACKWARDS, *(way for way in _BACKWARDS if "word" not in way)] if is_number else _BACKWARDS
    question = phrased(draw, ways, text=text)
    return one_turn("reversing", key, question, answer, thinking=thinking)


def _reversed_list(draw: Draw) -> Example:
    pool = draw.one((ITEMS, WORDS, WORDS, NAMES, CITIES[:40], _NUMERALS, _NUMERALS[:10], _LETTERS, *_ZH_POOLS))
    items, key = draw.until_admitted(lambda: draw.some(pool, draw.number(3, 6)), lambda made: f"reverse {made}")
    betweens = ("、", "、", ",", "，") if pool in _ZH_POOLS else (", ", ", ", ",", " ", " ")
    between = draw.one(betweens)
    question = phrased(draw, _LIST_BACKWARDS, text=between.join(items))
    return one_turn("reversing", key, question, (", " if between == "," else between).join(items[::-1]))


_NUMERALS, _LETTERS = tuple(map(str, range(100))), tuple("abcdefghijklmnop")
_ZH_POOLS = (ZH_ITEMS, ZH_CITIES)


def _spelled(draw: Draw) -> Example:
    text, key = draw.until_admitted(lambda: spelled_word(draw), lambda made: f"spell {made}")
    return one_turn("reversing", key, phrased(draw, _SPELL, text=text), "-".join(text))


def _end_letter(draw: Draw) -> Example:
    text, key = draw.until_admitted(lambda: spelled_word(draw), lambda made: f"end letter {made}")
    first = draw.chance(0.5)
    return one_turn(
        "reversing",
        key,
        phrased(draw, _FIRST if first else _LAST, text=text),
        text[0] if first else text[-1],
        thinking=" ".join(text),
    )


def _digits(draw: Draw) -> str:
    return "".join(str(draw.number(0, 9)) for _ in range(draw.number(2, 7)))


def _letters(draw: Draw) -> str:
    return "".join(draw.one("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.number(3, 6)))
