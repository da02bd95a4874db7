"""Makes "Did you mean …?" sentences: finds the known name nearest to an unknown one, or the one that another engine's
name stands for (`other_names.py`).

Code that refuses a name (of an option, a field, a command, a model) appends `suggestion` to its message.
"""

from collections.abc import Iterable
from typing import Any

from .other_names import ADVICE, NAMES

# How alike a misspelt name and the intended one must be, if any name may be given.
_SLIP = 0.85
# Longer words are not typing errors, and comparing them is slow.
_MOST_CHARACTERS = 80
_LEAST_PREFIX = 3


def nearest(word: Any, names: Iterable[Any]) -> str | None:
    """The name that was probably meant: the only one with this prefix, or one with nearly the same letters."""
    if not isinstance(word, str) or not 0 < len(word) <= _MOST_CHARACTERS:
        return None
    by_letters = {_letters(name): name for name in map(str, names)}
    letters = _letters(word)
    if (known := _known(letters, by_letters)) is not None:
        return known
    begun = [name for name in by_letters if len(letters) >= _LEAST_PREFIX and name.startswith(letters)]
    near = begun if len(begun) == 1 else _alike(letters, by_letters)
    return by_letters[near[0]] if near else None


def slip(word: Any, names: Iterable[str], alike: float = _SLIP) -> str | None:
    """The name that `word` misspells: nearly the same letters, or the same letters in another order."""
    if not isinstance(word, str) or not 0 < len(word) <= _MOST_CHARACTERS:
        return None
    names, letters = list(names), word.casefold()
    if word in names:
        return None
    turned = next((name for name in names if sorted(name) == sorted(letters)), None)
    near = _alike(letters, names, alike)
    return turned or (near[0] if near else None)


def _alike(letters: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    import difflib  # only for a refusal

    return difflib.get_close_matches(letters, names, n=1, cutoff=cutoff)


def suggestion(word: Any, names: Iterable[Any]) -> str:
    """A sentence to append, with the space before it; empty if no name is near."""
    names = list(map(str, names))
    letters = _letters(word) if isinstance(word, str) else ""
    by_letters = {_letters(name): name for name in names}
    if letters in ADVICE and letters not in by_letters and _known(letters, by_letters) is None:
        return f" {ADVICE[letters]}"
    name = nearest(word, names)
    return "" if name is None else f" Did you mean {name}?"


def _known(letters: str, by_letters: dict[str, str]) -> str | None:
    """The name that another engine's name stands for."""
    return next((by_letters[name] for name in NAMES.get(letters, ()) if name in by_letters), None)


def _letters(name: str) -> str:
    """The name without capitals and separators, which don't distinguish names."""
    return str.casefold(name).replace("-", "_").strip("_ ")  # a caller's own kind of text may have another method
