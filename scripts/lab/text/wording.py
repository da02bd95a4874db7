"""Loosens a share of all phrases like people really type: in small letters or capitals, with other punctuation.

What is loosened is a phrase before its values stand in it, so that no text to copy, name or argument is touched; an
answer stays right whatever happens to its question. `core` is what all loosened forms of one phrase have in common: by
it phrases are kept on one side of the split. Knows no kind of question.
"""

import re
import unicodedata
from collections.abc import Sequence

from .example import Draw

LOOSE_SHARE = 0.4
_SENTENCE_ENDS = ".?!。？！"
_WIDE = str.maketrans("?!,:", "？！，：")
_VALUE = re.compile(r"(\{\w+\})")
_SHORT = (("you", "u"), ("You", "U"), ("are", "r"), ("please", "plz"), ("your", "ur"))
_COURTESY = re.compile(r"\b(please|pls|plz)\b|请问|请")


def worded(draw: Draw, phrases: Sequence[str], **values: object) -> str:
    """One of these phrases, loosened or not, with its values in it."""
    return loosened(draw, draw.one(phrases)).format(**values)


def loosened(draw: Draw, phrase: str, share: float = LOOSE_SHARE) -> str:
    """The phrase as it is, or, for a share of them, as somebody in a hurry types it."""
    if not draw.chance(share):
        return phrase
    return _chinese(draw, phrase) if not phrase.isascii() else _english(draw, phrase)


def _english(draw: Draw, phrase: str) -> str:
    phrase = _other_end(draw, phrase)
    small = draw.number(0, 3)
    if small:
        phrase = phrase[:1].lower() + phrase[1:] if small == 1 else phrase.lower()
    if draw.chance(0.3):
        phrase = phrase.replace("what is", "whats").replace("what's", "whats")
    if draw.chance(0.12):
        phrase = _in_short(phrase)
    if draw.chance(0.1) and not _COURTESY.search(phrase.lower()) and "thank" not in phrase.lower():
        phrase = _asked_kindly(draw, phrase)
    if draw.chance(0.15):
        phrase = _in_capitals(phrase)
    return _other_spaces(draw, phrase)


def _in_short(phrase: str) -> str:
    """Shorten words like people do on a phone."""
    return "".join(piece if piece.startswith("{") else _shortened(piece) for piece in split_at_values(phrase))


def _shortened(text: str) -> str:
    for long, short in _SHORT:
        text = re.sub(rf"\b{long}\b", short, text)
    return text


def _chinese(draw: Draw, phrase: str) -> str:
    phrase = _other_end(draw, phrase)
    if draw.chance(0.1) and not phrase.startswith(("{", "请")):
        phrase = "请" + phrase
    return phrase.translate(_WIDE) if draw.chance(0.6) else phrase


def _other_end(draw: Draw, phrase: str) -> str:
    """Without the sign a sentence ends with, or with two of it. Behind a value nothing is put: it might become part."""
    bare = phrase.rstrip(_SENTENCE_ENDS)
    if bare == phrase or not bare:
        return phrase
    return bare if draw.chance(0.75) else phrase + phrase[-1]


def _asked_kindly(draw: Draw, phrase: str) -> str:
    if not phrase.startswith("{") and draw.chance(0.5):
        return draw.one(("please ", "Please ", "pls ")) + phrase[0].lower() + phrase[1:]
    return phrase if phrase.endswith("}") else phrase + draw.one((" please", ", please", " pls"))


def _in_capitals(phrase: str) -> str:
    return "".join(piece if _VALUE.fullmatch(piece) else piece.upper() for piece in split_at_values(phrase))


def split_at_values(phrase: str) -> list[str]:
    """The phrase in pieces, the places of its values among them."""
    return _VALUE.split(phrase)


def _other_spaces(draw: Draw, phrase: str) -> str:
    """One space too many or too few: at the end, in the middle, around a sign."""
    if draw.chance(0.85):
        return phrase
    form = draw.number(0, 2)
    if form == 0:
        return phrase if phrase.endswith("}") else phrase + " "
    if form == 1:
        return phrase.replace(" ", "  ", 1)
    return re.sub(r" ?([+\-*/:=<>]) ?", r"\1", phrase)


def is_chinese(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def core(text: str) -> str:
    """The core of a text, without anything that `loosened` may change."""
    text = _COURTESY.sub("", _shortened(unicodedata.normalize("NFKC", text).casefold()))
    return re.sub(r"[\W_]+", "", text).replace("whatis", "whats")
