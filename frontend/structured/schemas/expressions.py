"""Combines regular expressions: texts that match all of some and none of others, without look-aheads."""

from functools import lru_cache

from .automata import ANY, LAST, Automaton, Ranges, Unreadable, automaton_of, merged, others

_Tree = dict[str, "_Tree"]  # character → what may follow it; the empty key ends a text

_MOST_VISITS = 60_000  # of states, while an expression is written
_MOST_SETS = 40  # of the automaton that is reversed
_MOST_CHARACTERS = 6000  # of the expression for all other texts


@lru_cache(maxsize=256)
def expression(found: tuple[str, ...], not_found: tuple[str, ...]) -> str:
    """An anchored expression for every text that matches all of `found` and none of `not_found`; or `Unreadable`."""
    automata = [automaton_of(each) for each in (*found, *not_found)]

    def is_in(states: tuple[frozenset[int], ...], is_empty: bool) -> bool:
        accepted = [each.accepts(own, is_empty=is_empty) for each, own in zip(automata, states, strict=True)]
        return all(accepted[: len(found)]) and not any(accepted[len(found) :])

    begin = tuple(each.closure(frozenset([0]), "^") for each in automata)
    numbers, todo, visits = {begin: 0}, [begin], 0
    steps: dict[tuple[int, int], list[tuple[int, int]]] = {}
    while todo:
        states = todo.pop()
        for first, last in _pieces(automata, states):
            target = tuple(each.after(own, first) for each, own in zip(automata, states, strict=True))
            visits += sum(map(len, states)) + sum(map(len, target))
            if target not in numbers:
                numbers[target] = len(numbers)
                todo.append(target)
            if len(numbers) > _MOST_SETS or visits > _MOST_VISITS:
                raise Unreadable("it is too much to write down")
            steps.setdefault((numbers[states], numbers[target]), []).append((first, last))
    edges = {pair: _class_text(merged(ranges)) for pair, ranges in steps.items()}
    accepting = [number for states, number in numbers.items() if is_in(states, False)]
    return _expression(edges, len(numbers), accepting, is_in(begin, True))


def other_texts(texts: tuple[str, ...]) -> str:
    """An expression for all texts but these."""
    tree: _Tree = {}
    for text in texts:
        node = tree
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    written = _others_of(tree, 0)
    if len(written) > 4 * _MOST_CHARACTERS:
        raise Unreadable("the result would be too long")
    return f"^{written}$"


def _others_of(node: _Tree, level: int) -> str:
    if level > 200:
        raise Unreadable("a value is too long")
    points = merged([(ord(character), ord(character)) for character in node if character])
    ways = [] if "" in node else [""]
    ways.append(f"{_class_text(others(points))}{_class_text(ANY)}*")
    ways.extend(
        f"{_class_text(((ord(character),) * 2,))}{_others_of(below, level + 1)}"
        for character, below in node.items()
        if character
    )
    return _either(ways)


def _pieces(automata: list[Automaton], states: tuple[frozenset[int], ...]) -> list[tuple[int, int]]:
    """Split all code points into pieces, each of which leads to one set of states."""
    bounds = {0}
    for automaton, own in zip(automata, states, strict=True):
        for state in own:
            for ranges, _ in automaton.edges[state]:
                bounds.update(point for first, last in ranges for point in (first, last + 1))
    begins = sorted(bounds - {LAST + 1})
    return [(first, following - 1) for first, following in zip(begins, [*begins[1:], LAST + 1], strict=True)]


def _expression(edges: dict[tuple[int, int], str], count: int, accepting: list[int], is_empty_text_in: bool) -> str:
    """Convert to an expression by eliminating one state after another."""
    start, end = count, count + 1
    ways = {pair: [text] for pair, text in edges.items()}
    # The start has state 0's edges, but isn't eliminated, and doesn't accept by itself.
    for (begin, target), text in edges.items():
        if begin == 0:
            ways.setdefault((start, target), []).append(text)
    for number in accepting:
        ways.setdefault((number, end), []).append("")
    for number in range(count):
        loop = ways.pop((number, number), None)
        inside = f"{_either(loop)}*" if loop else ""
        into = [(begin, texts) for (begin, target), texts in ways.items() if target == number]
        out = [(target, texts) for (begin, target), texts in ways.items() if begin == number]
        for begin, before in into:
            for target, behind in out:
                text = f"{_either(before)}{inside}{_either(behind)}"
                if len(text) > _MOST_CHARACTERS:
                    raise Unreadable("it is too much to write down")
                ways.setdefault((begin, target), []).append(text)
        ways = {pair: texts for pair, texts in ways.items() if number not in pair}
    found = ways.get((start, end), []) + ([""] if is_empty_text_in else [])
    if not found:
        return NO_TEXT
    return f"^{_either(found)}$"


NO_TEXT = "^[^\\s\\S]$"


def _either(ways: list[str]) -> str:
    ways = list(dict.fromkeys(ways))
    return ways[0] if len(ways) == 1 and len(ways[0]) <= 1 else f"(?:{'|'.join(ways)})"


def _class_text(ranges: Ranges) -> str:
    if ranges == ANY:
        return "(?s:.)"
    return f"[{''.join(_point(first) + ('-' + _point(last) if last > first else '') for first, last in ranges)}]"


def _point(point: int) -> str:
    # Half a surrogate pair is no character: use the nearest one instead.
    return f"\\x{{{0xD7FF if 0xD800 <= point < 0xDC00 else 0xE000 if 0xDC00 <= point < 0xE000 else point:x}}}"


def split_look_ahead(pattern: str) -> tuple[str, list[str], list[str]]:
    """Split `^(?=a)(?!b)c` into `^c`, expressions that must also match (`^(?:a)`), and those that must not
    (`^(?:b)`)."""
    found: dict[str, list[str]] = {"(?=": [], "(?!": []}
    rest = pattern[1:] if pattern.startswith("^") else pattern
    while rest[:3] in found and pattern.startswith("^"):
        end = _closing(rest)
        found[rest[:3]].append(f"^(?:{rest[3:end]})")
        rest = rest[end + 1 :]
    if not any(found.values()):
        return pattern, [], []
    if rest[:1] in ("*", "+", "?", "{") or _has_outer_alternative(rest):
        raise Unreadable("it looks ahead in a part of it")
    return f"^{rest}", found["(?="], found["(?!"]


def _levels(pattern: str) -> list[tuple[int, str, int]]:
    """Each character that is neither escaped nor in a class, with its index and the number of open groups before it."""
    levels, level, index, is_in_class = [], 0, 0, False
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            index += 1
        elif is_in_class:
            is_in_class = character != "]"
        else:
            levels.append((index, character, level))
            is_in_class = character == "["
            level += {"(": 1, ")": -1}.get(character, 0)
        index += 1
    return levels


def _closing(pattern: str) -> int:
    for index, character, level in _levels(pattern):
        if character == ")" and level == 1:
            return index
    raise Unreadable("its parentheses don't match")


def _has_outer_alternative(pattern: str) -> bool:
    return any(character == "|" and level == 0 for _, character, level in _levels(pattern))
