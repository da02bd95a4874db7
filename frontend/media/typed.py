"""Keeps what somebody has typed from becoming a placeholder: a text that spells one of the family's marks is cut.

The cut is a character that stands for nothing (U+FDD0). It goes through the chat template with its text; where it
stands, the rendered text is tokenized in two pieces, neither of which is the mark.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

CUT = "\ufdd0"


class Typed:
    """Cuts texts for one family of marks."""

    def __init__(self, marks: Iterable[str]) -> None:
        self._marks = re.compile("|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)))

    def cut(self, value: Any) -> Any:
        """The same, of JSON's types, with a cut in every mark that its texts spell; others are the same objects."""
        if isinstance(value, str):
            if CUT in value:
                value = value.replace(CUT, "")
            return self._marks.sub(_cut, value) if self._marks.search(value) else value
        if isinstance(value, Mapping):
            changed: Any = {self.cut(name): self.cut(each) for name, each in value.items()}
            return value if _is_same(value.items(), changed.items()) else changed
        if isinstance(value, (list, tuple)):
            items = [self.cut(each) for each in value]
            if all(new is old for new, old in zip(items, value)):
                return value
            return items if isinstance(value, list) else tuple(items)
        return value


def _is_same(old: Iterable[tuple[Any, Any]], new: Iterable[tuple[Any, Any]]) -> bool:
    return all(one[0] is other[0] and one[1] is other[1] for one, other in zip(old, new))


def _cut(mark: re.Match[str]) -> str:
    """After the first character: what is left is no mark, whatever stands around it."""
    return mark[0][:1] + CUT + mark[0][1:]


def pieces(text: str) -> list[str]:
    return text.split(CUT)


def joined(text: str) -> str:
    """The text as its reader knows it."""
    return text.replace(CUT, "")
