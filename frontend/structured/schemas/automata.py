"""Regular expressions as automata, to test whether one matches a text.

A schema's expressions may be hostile, so they are matched state by state, never by backtracking. Literals, classes,
groups, alternatives, counts and anchors are supported; `Unreadable` is raised for anything else, and for expressions
that are too large. `\\d` and `\\w` are ASCII only, as in the engine's compiler.
"""

from dataclasses import dataclass, field
from functools import lru_cache

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included, ascending and disjoint

LAST = 0x10FFFF
_MOST_STATES = 1500  # of the automaton that matches a text


class Unreadable(Exception):
    """The expression uses unsupported syntax, or is too large."""


def merged(ranges: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def others(ranges: Ranges) -> Ranges:
    others, begin = [], 0
    for first, last in ranges:
        if begin < first:
            others.append((begin, first - 1))
        begin = last + 1
    return (*others, (begin, LAST)) if begin <= LAST else tuple(others)


ANY: Ranges = ((0, LAST),)
_DIGITS: Ranges = ((0x30, 0x39),)
_WORD = merged([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_SPACE = merged(
    [(9, 13), (32, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
     (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
)  # fmt: skip
_CLASSES = {
    "d": _DIGITS, "D": others(_DIGITS), "w": _WORD, "W": others(_WORD), "s": _SPACE, "S": others(_SPACE),
}  # fmt: skip
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11}


@dataclass
class Automaton:
    """An automaton whose state 0 begins and state 1 accepts. An empty edge may hold only at the text's start (^) or
    end ($)."""

    edges: list[list[tuple[Ranges, int]]] = field(default_factory=lambda: [[], []])
    empty: list[list[tuple[str, int]]] = field(default_factory=lambda: [[], []])

    def state(self) -> int:
        if len(self.edges) >= _MOST_STATES:
            raise Unreadable("it is too large")
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def closure(self, states: frozenset[int], anchors: str = "") -> frozenset[int]:
        """These states and those reached from them by empty edges, including the edges of `anchors`."""
        found, todo = set(states), list(states)
        while todo:
            for kind, target in self.empty[todo.pop()]:
                if kind in anchors and target not in found:
                    found.add(target)
                    todo.append(target)
        return frozenset(found)

    def accepts(self, states: frozenset[int], *, is_empty: bool = False) -> bool:
        """Whether the text may end here; an empty text's start is also its end."""
        return 1 in self.closure(states, "^$" if is_empty else "$")

    def after(self, states: frozenset[int], point: int) -> frozenset[int]:
        return self.closure(
            frozenset(
                target
                for state in states
                for ranges, target in self.edges[state]
                if any(first <= point <= last for first, last in ranges)
            )
        )


class _Reader:
    """Builds the automaton while reading, by recursive descent; each part is between two states."""

    _MOST_LEVELS = 24

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.levels = 0
        self.automaton = Automaton()

    def read(self) -> Automaton:
        # A search: anything may precede and follow a match.
        for state in (0, 1):
            self.automaton.edges[state].append((ANY, state))
        begin = self.automaton.state()
        self.automaton.empty[0].append(("", begin))
        self._alternatives(begin, 1)
        if self.position < len(self.pattern):
            raise Unreadable("its parentheses don't match")
        return self.automaton

    def _peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def _take(self) -> str:
        if not (character := self._peek()):
            raise Unreadable("it ends too early")
        self.position += 1
        return character

    def _join(self, begin: int, end: int, kind: str = "") -> None:
        self.automaton.empty[begin].append((kind, end))

    def _alternatives(self, begin: int, end: int) -> None:
        self.levels += 1
        if self.levels > self._MOST_LEVELS:
            raise Unreadable("it is nested too deeply")
        while True:
            last = begin
            # A loop must not lead back into its prefix: each part begins in a state of its own.
            first = self.automaton.state()
            self._join(last, first)
            last = first
            while self._peek() not in ("", "|", ")"):
                last = self._counted(last)
            self._join(last, end)
            if self._peek() != "|":
                break
            self._take()
        self.levels -= 1

    def _counted(self, begin: int) -> int:
        start = self.position
        end = self._atom(begin)
        least, most = self._count()
        if (least, most) == (1, 1):
            return end
        if most == 0 or (most is not None and most < least):
            raise Unreadable("its counts can't be read")
        stop = self.position
        # Read the atom again for each possible repetition.
        last = begin
        copies = most if most is not None else max(least, 1)
        ends = [begin] if least == 0 else []
        for number in range(1, copies + 1):
            first = last
            if number == 1:
                last = end
            else:
                self.position = start
                last = self._atom(first)
            if most is None and number == copies:
                self._join(last, first)
            if number >= least:
                ends.append(last)
        self.position = stop
        after = self.automaton.state()
        for each in ends:
            self._join(each, after)
        return after

    def _count(self) -> tuple[int, int | None]:
        match self._peek():
            case "*":
                found: tuple[int, int | None] = (0, None)
            case "+":
                found = (1, None)
            case "?":
                found = (0, 1)
            case "{":
                return self._braces()
            case _:
                return 1, 1
        self._take()
        self._lazy()
        return found

    def _braces(self) -> tuple[int, int | None]:
        self._take()
        text = ""
        while (character := self._take()) != "}":
            text += character
        least, comma, most = text.partition(",")
        if not least.isascii() or not least.isdigit() or (most and not (most.isascii() and most.isdigit())):
            raise Unreadable("its counts can't be read")
        if len(least) > 4 or len(most) > 4:
            raise Unreadable("it is too large")
        self._lazy()
        return int(least), int(most) if most else None if comma else int(least)

    def _lazy(self) -> None:
        """Skip a lazy mark: it doesn't change which texts match."""
        if self._peek() == "?":
            self._take()
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise Unreadable("its counts can't be read")

    def _atom(self, begin: int) -> int:
        # Each atom has a state before it, so that a loop around it affects nothing else.
        first, end = self.automaton.state(), self.automaton.state()
        self._join(begin, first)
        match character := self._take():
            case "(":
                if self._peek() == "?":
                    self._take()
                    if self._take() != ":":
                        raise Unreadable("it has a look-around or a named group")
                self._alternatives(first, end)
                if self._take() != ")":
                    raise Unreadable("its parentheses don't match")
            case "^" | "$":
                self._join(first, end, character)
            case ".":
                self._edge(first, end, others(((10, 10),)))
            case "[":
                self._edge(first, end, self._class())
            case "\\":
                self._edge(first, end, self._escape())
            case "*" | "+" | "?" | "{" | "}" | "]":
                raise Unreadable("it can't be read")
            case _:
                self._edge(first, end, ((ord(character), ord(character)),))
        return end

    def _edge(self, begin: int, end: int, ranges: Ranges) -> None:
        self.automaton.edges[begin].append((ranges, end))

    def _escape(self) -> Ranges:
        character = self._take()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROLS:
            return ((_CONTROLS[character],) * 2,)
        if character in ("x", "u"):
            digits = self.pattern[self.position : self.position + (2 if character == "x" else 4)]
            if len(digits) != (2 if character == "x" else 4) or not all(c in "0123456789abcdefABCDEF" for c in digits):
                raise Unreadable("its escapes can't be read")
            self.position += len(digits)
            return ((int(digits, 16),) * 2,)
        if character.isalnum():
            raise Unreadable("its escapes can't be read")
        return ((ord(character),) * 2,)

    def _class(self) -> Ranges:
        is_negated = self._peek() == "^"
        if is_negated:
            self._take()
        ranges: list[tuple[int, int]] = []
        if self._peek() == "]":
            raise Unreadable("a class of it is empty")
        while (character := self._take()) != "]":
            if character == "[" or (character in "&-~" and self._peek() == character):
                raise Unreadable("a class stands in a class")
            low = self._escape() if character == "\\" else ((ord(character),) * 2,)
            if self._peek() == "-" and self.pattern[self.position + 1 : self.position + 2] not in ("]", ""):
                self._take()
                character = self._take()
                high = self._escape() if character == "\\" else ((ord(character),) * 2,)
                if character == "[" or any(first != last for first, last in (*low, *high)) or low[0] > high[0]:
                    raise Unreadable("a class of it can't be read")
                low = ((low[0][0], high[0][1]),)
            ranges.extend(low)
        return others(merged(ranges)) if is_negated else merged(ranges)


@lru_cache(maxsize=256)
def automaton_of(pattern: str) -> Automaton:
    return _Reader(pattern).read()


def matches(pattern: str, text: str) -> bool:
    """Whether the expression is found in the text; raises `Unreadable`."""
    automaton = automaton_of(pattern)
    states = automaton.closure(frozenset([0]), "^")
    for character in text:
        states = automaton.after(states, ord(character))
    return automaton.accepts(states, is_empty=not text)
