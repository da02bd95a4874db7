"""Ways to say one thing, put together from pieces, so that hardly any two questions are worded alike.

A grammar is a phrase with alternatives in brackets, which may stand in one another: "[Sort|Order] {list}[ please|]".
Around it stands what people put before and behind a question, and a slip of the finger comes in. Values stand in braces
and are put in later: nothing here changes them. Knows no kind of question.
"""

import re
from collections.abc import Sequence

from .example import Draw
from .wording import loosened, split_at_values

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_QUESTION_WORDS = frozenset((
    "what", "what's", "whats", "which", "how", "how's", "who", "where", "when", "is", "are", "does", "do", "at",
    "on", "name", "tell",
))  # fmt: skip
_FRAGMENT_ENDS = (".", "?", "!", "。", "？", "！", ":", "：")
# What stands before a request, by what may follow it.
_BEFORE_ANY = (
    "I forgot: ", "Not sure: ", "Homework: ", "One more: ", "Last one: ", "Listen, ", "Look: ", "My turn: ",
    "I was asked: ", "For my kid: ", "Hey, ", "Hi, ", "Hello, ", "Ok, ", "So ", "So, ", "Pocket, ", "Hey pocket, ",
    "Quick question: ", "Once more: ", "Again: ", "Say it again: ", "ok ", "hm, ", "oh, ", "Remind me: ", "Now ",
    "Question: ", "Well, ", "Hello! ", "Hi! ", "And ", "Next: ", "Ok now ", "Hi there, ",
)  # fmt: skip
_BEFORE_QUESTION = ("Tell me, ", "Can you tell me ", "Could you tell me ", "Do you know ", "I want to know ",
    "Tell me ",
                    "I'd like to know ", "I need to know ", "Can you tell me: ", "Please tell me ", "Say, ",
                    "I wonder ",
                    "Just tell me ", "Answer this: ", "My question is: ", "I have a question: ")  # fmt: skip
_BEFORE_ORDER = ("Can you ", "Could you ", "Please ", "Could you please ", "Can you please ", "Would you ",
    "I want you to ",
                 "I need you to ", "I'd like you to ", "Would you please ", "Will you ", "You should ", "Just ",
                 "Now please ",
                 "Go ahead and ", "Kindly ", "Help me ", "Pls ", "Try to ", "Let's ")  # fmt: skip
_BEHIND = (
    ", can you help me", ", can you do that", ", i need it", ", if you can", " right now", ", quickly", ", my friend",
    ", i forgot", ", can you tell me", " for my kid", " for my homework", " for school", ", just that", " again",
    " please", ", please", " thanks", ", thanks", " for me", ", thank you", " pls", " please?", " for me please",
    ", pocket",
)  # fmt: skip
_ZH_BEFORE = ("请问", "请", "你好,", "请告诉我,", "帮我", "麻烦你", "那么,", "请你", "告诉我,", "我想知道,", "请帮我")
_SLIP_SHARE = 0.04


def expanded(draw: Draw, grammar: str) -> str:
    """One phrase of the grammar."""
    while choice := _CHOICE.search(grammar):
        grammar = grammar[: choice.start()] + draw.one(choice[1].split("|")) + grammar[choice.end() :]
    return grammar


def framed(draw: Draw, phrase: str, share: float = 0.25) -> str:
    """The phrase, or, for a share of them, as part of a longer sentence."""
    if not draw.chance(share):
        return phrase
    if not phrase.isascii():
        return phrase if phrase.startswith(("请", "{", "你")) else draw.one(_ZH_BEFORE[:3]) + phrase
    first = phrase.split(" ", 1)[0].lower().rstrip(",.?!:")
    if phrase.startswith("{"):
        return draw.one(_BEFORE_ANY) + phrase
    if draw.chance(0.3) and not phrase.endswith("}"):
        return _with_tail(draw, phrase)
    if draw.chance(0.3):
        return draw.one(_BEFORE_ANY) + _small(phrase)
    before = _BEFORE_QUESTION if first in _QUESTION_WORDS - {"name", "tell"} else _BEFORE_ORDER
    is_sentence = first in _QUESTION_WORDS or phrase.endswith(".") or first in _ORDERS
    if not is_sentence or (first in ("is", "are", "does", "do") and draw.chance(0.7)):
        before = _BEFORE_ANY
    if first in ("can", "could", "would", "please", "i", "do", "tell", "the"):
        before = _BEFORE_ANY
    return draw.one(before) + _small(phrase)


_ORDERS = frozenset((
    "sort", "order", "arrange", "put", "rank", "list", "write", "reverse", "flip", "spell", "turn", "say", "repeat",
    "copy", "echo", "print", "output", "count", "add", "subtract", "compute", "calculate", "take", "give", "find",
    "translate", "convert", "make", "extract", "name", "read", "show", "type", "work",
))  # fmt: skip


def _with_tail(draw: Draw, phrase: str) -> str:
    bare = phrase.rstrip("".join(_FRAGMENT_ENDS))
    end = phrase[len(bare) :]
    if end.startswith(":"):
        return phrase
    return bare + draw.one(_BEHIND) + (end if draw.chance(0.6) and end in (".", "?") else "")


def _small(phrase: str) -> str:
    """Make its first letter small, unless its first word is always written large."""
    return phrase if phrase.startswith(("I ", "I'", "{")) else phrase[:1].lower() + phrase[1:]


def mistyped(draw: Draw, phrase: str) -> str:
    """Mistype a long word now and then."""
    if not draw.chance(_SLIP_SHARE):
        return phrase
    pieces = split_at_values(phrase)
    places = [place for place, piece in enumerate(pieces) if not piece.startswith("{")]
    place = draw.one(places) if places else 0
    words = pieces[place].split(" ")
    long = [number for number, word in enumerate(words) if len(word) > 4 and word.isascii() and word.isalpha()]
    if not long:
        return phrase
    number = draw.one(long)
    words[number] = _slipped(draw, words[number])
    return "".join((*pieces[:place], " ".join(words), *pieces[place + 1 :]))


def _slipped(draw: Draw, word: str) -> str:
    place = draw.number(1, len(word) - 2)
    form = draw.number(0, 2)
    if form == 0:
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return word[:place] + (word[place] * 2 if form == 1 else "") + word[place + 1 :]


def phrased(draw: Draw, grammars: Sequence[str], **values: object) -> str:
    """One phrase of these grammars, in a frame or not, loosened or not, with its values in it."""
    phrase = framed(draw, expanded(draw, draw.one(grammars)))
    return mistyped(draw, loosened(draw, phrase)).format(**values)


def every_phrase(grammar: str) -> set[str]:
    """All phrases of the grammar."""
    phrases = {grammar}
    # One choice of each at a time: what becomes alike on the way, as an alternative that isn't taken, goes on as one.
    while any(map(_CHOICE.search, phrases)):
        phrases = {each for phrase in phrases for each in _first_choice_made(phrase)}
    return phrases


def _first_choice_made(phrase: str) -> list[str]:
    if (choice := _CHOICE.search(phrase)) is None:
        return [phrase]
    return [phrase[: choice.start()] + each + phrase[choice.end() :] for each in choice[1].split("|")]
