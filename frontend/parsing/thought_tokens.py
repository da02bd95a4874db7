"""Converts a row for thoughts to token ids, for the engine, which works without text."""

from collections.abc import Callable, Iterable

from ...protocol.parameters.guided import Thought
from .marks import ThoughtMarks
from .parser_choice import Parsing

Encode = Callable[[str], list[int]]  # without special tokens around; empty if the model lacks one

# A mark of several tokens is tokenized differently next to other characters; these are the usual ones.
_BEFORE = ("", " ", "\n", "\n\n", ".\n", ".\n\n")
_BEHIND = ("", "\n", "\n\n")


class ThoughtTokens:
    """Makes the `Thought` of each request to a model with these marks around its thoughts."""

    def __init__(self, thoughts: ThoughtMarks | None, encode: Encode) -> None:
        self._thoughts = thoughts
        self._encode = encode
        self._openings = spellings(thoughts.all_openings, encode) if thoughts else []
        self._closings = spellings(thoughts.all_closings, encode) if thoughts else []
        self._forced = encode(_forced(thoughts)) if thoughts else []
        self._calls = [ids for mark in thoughts.calls if (ids := encode(mark))] if thoughts else []

    @property
    def can_be_closed(self) -> bool:
        """There are tokens for the mark that ends a thought."""
        return bool(self._forced)

    def of(self, parsing: Parsing, prompt_end: str, stop_sentence: str = "") -> Thought | None:
        """The request's `Thought`; None if thoughts can't be recognized in its answer. The sentence is written before
        the mark that ends a thought at its limit."""
        if parsing.thoughts is None or self._thoughts is None:
            return None
        is_closed = prompt_end.rstrip().endswith(self._thoughts.all_closings)
        openings = [] if is_closed else self._openings
        calls = self._calls if parsing.calls is not None else []
        forced = self._encode(stop_sentence + _forced(self._thoughts)) if stop_sentence else self._forced
        return Thought(parsing.is_thinking(prompt_end), openings, self._closings, forced, calls)


def _forced(thoughts: ThoughtMarks) -> str:
    return thoughts.forced or f"\n{thoughts.closing}\n\n"


def spellings(marks: Iterable[str], encode: Encode) -> list[list[int]]:
    """All usual tokenizations of the marks, except those that contain another one."""
    written = {tuple(encode(before + mark + behind)) for mark in marks for before in _BEFORE for behind in _BEHIND}
    kept: list[tuple[int, ...]] = []
    for ids in sorted(written, key=len):
        if ids and not any(_holds(ids, shorter) for shorter in kept):
            kept.append(ids)
    return [list(ids) for ids in kept]


def _holds(ids: tuple[int, ...], part: tuple[int, ...]) -> bool:
    return any(ids[index : index + len(part)] == part for index in range(len(ids) - len(part) + 1))
