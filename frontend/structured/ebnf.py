"""Translates grammars in EBNF (the GBNF of llama.cpp, which vLLM and xgrammar accept) to Lark; Lark itself is accepted,
too.

    root ::= "yes" | number ("," number)*        start: "yes" | r_number ("," r_number)*
    number ::= [0-9]+                            r_number: /[0-9]/+

EBNF is recognized by its `::=`. Lark's marks that only shape a parse tree (`?rule`, `!rule`) are dropped, because there
is none.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from ...protocol.errors import RequestError

# Text that was read is never read again in another way, and an unclosed bracket is an error, so reading takes time
# proportional to the text's length, whatever its content.
_TOKENS = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*|\(\*.*?\*\))
      | (?P<unclosed>\(\*)
      | (?P<line>\n)
      | (?P<define>::=)
      | (?P<name>[A-Za-z_][\w-]*|<[A-Za-z_][\w-]*>)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<class>\[(?:[^\]\\\n]|\\.)*\])
      | (?P<count>\{\s*+\d*+\s*+,?+\s*+\d*+\s*+\}|[*+?])
      | (?P<mark>[()|.;])""",
    re.VERBOSE | re.DOTALL,
)
_LEVELS = {"(": 1, ")": -1}
_MOST_LEVELS = 64  # of a rule
_IS_EBNF = re.compile(r"^[ \t]*\S+\s*::=", re.MULTILINE)
_TREE_MARKS = re.compile(r"^([ \t]*)[?!]+(?=[a-z_]\w*\s*(?:\.-?\d+\s*)?:)", re.MULTILINE)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def as_lark(grammar: str) -> str:
    """Convert a grammar to Lark; raises `RequestError` for EBNF that can't be read."""
    if not _IS_EBNF.search(grammar):
        return _TREE_MARKS.sub(r"\1", grammar)
    return "\n".join(_rules(list(_tokens(grammar)))) + "\n"


def _tokens(grammar: str) -> Iterator[_Token]:
    offset, line, level = 0, 1, 0
    while offset < len(grammar):
        found = _TOKENS.match(grammar, offset)
        if found is None:
            raise _wrong(line, f"EBNF has nothing that begins with {grammar[offset : offset + 20]!r}")
        if found.lastgroup == "unclosed":
            raise _wrong(line, "a comment begins with (* and is not closed by *)")
        level = 0 if found.lastgroup == "define" else level + _LEVELS.get(found[0], 0)
        if not 0 <= level <= _MOST_LEVELS:
            raise _wrong(line, f"its parentheses don't match, or are more than {_MOST_LEVELS} levels deep")
        if found.lastgroup not in ("space", "line"):
            yield _Token(found.lastgroup or "", found[0], line)
        line += found[0].count("\n")
        offset = found.end()


def _rules(tokens: list[_Token]) -> Iterator[str]:
    """Write one line per rule. A rule ends where a name and `::=` begin the next."""
    starts = [index - 1 for index, token in enumerate(tokens) if token.kind == "define"]
    if starts[0] != 0 or any(tokens[start].kind != "name" for start in starts):
        wrong = tokens[0] if starts[0] != 0 else next(tokens[start] for start in starts if tokens[start].kind != "name")
        raise _wrong(wrong.line, "a rule begins with its name and ::=")
    names = {_bare(tokens[start].text) for start in starts}
    if "root" not in names and "start" not in names:
        raise RequestError("grammar: EBNF begins with a rule named root.")
    root = "root" if "root" in names else "start"
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        body = " ".join(_body(tokens[start + 2 : end], names, root))
        yield f"{_renamed(tokens[start].text, root)}: {body}"


def _body(tokens: list[_Token], names: set[str], root: str) -> Iterator[str]:
    level = 0
    for token in tokens:
        match token.kind:
            case "name" if _bare(token.text) not in names:
                raise _wrong(token.line, f"there is no rule {token.text}")
            case "name":
                yield _renamed(token.text, root)
            case "text":
                yield json.dumps(_unescaped(token, token.text[1:-1]), ensure_ascii=False)
            case "class":
                yield _class(token)
            case "count":
                yield token.text.replace(" ", "")
            case _ if token.text == ".":
                yield r"/[^\n]/"
            case _ if token.text != ";":
                level += _LEVELS.get(token.text, 0)
                yield token.text
    if level:
        raise _wrong(tokens[-1].line, "a parenthesis is not closed")


def _bare(name: str) -> str:
    return name.strip("<>")


def _renamed(name: str, root: str) -> str:
    """The name as a Lark rule: lower case, and not a name with a meaning there."""
    bare = _bare(name)
    if bare == root:
        return "start"
    # Escape upper case and hyphens, so that different names stay different.
    return "r_" + re.sub(r"[A-Z-]", lambda found: f"_{ord(found[0]):x}_", bare)


def _class(token: _Token) -> str:
    """A class of characters, as a regular expression."""
    inside = token.text[1:-1]
    is_negated = inside.startswith("^")
    pieces: list[str] = []
    for piece in re.findall(
        r"\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\.|.", inside[is_negated:], re.DOTALL
    ):
        if piece in ("\\d", "\\w", "\\s", "\\D", "\\W", "\\S"):
            pieces.append(piece)
        elif piece == "-" and pieces and len(pieces) < len(inside):
            pieces.append("-")
        else:
            character = _unescaped(token, piece)
            pieces.append(character if character.isalnum() else f"\\u{{{ord(character):x}}}")
    if pieces and pieces[-1] == "-":
        pieces[-1] = r"\-"
    if not pieces:
        raise _wrong(token.line, f"{token.text} has no characters")
    return f"/[{'^' if is_negated else ''}{''.join(pieces)}]/"


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "b": "\b", "0": "\0", "a": "\a"}


def _unescaped(token: _Token, text: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        return chr(int(code, 16)) if code else _ESCAPES.get(found[4], found[4])

    try:
        unescaped = re.sub(
            r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", character, text, flags=re.DOTALL
        )
        unescaped.encode()
    except ValueError:  # beyond Unicode, or half a surrogate pair
        raise _wrong(token.line, f"{token.text} is no text") from None
    return unescaped


def _wrong(line: int, what: str) -> RequestError:
    return RequestError(f"grammar: line {line} can't be read as EBNF: {what}.")
