"""Which code of the package reads which field of a struct, found in the sources: none is imported or run.

A reading is `params.min_p` where `params` holds the struct, by its annotation here or elsewhere; a name in a table, in
a file that goes through such a table with `getattr`; a field of a NamedTuple that such a file imports; or what a method
of the struct's own reads, where that is called.
"""

import ast
import re
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("protocol", "engine", "worker", "kernels", "frontend", "allspark")


def sources() -> dict[str, str]:
    """By the path from the root."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


_MATTER = {
    ast.Attribute, ast.Assign, ast.Call, ast.Constant, ast.arg, ast.AnnAssign, ast.FunctionDef, ast.ClassDef,
    ast.ImportFrom,
}  # fmt: skip


class _File(NamedTuple):
    annotations: list[tuple[str, set[str]]]  # a name, and those in its annotation
    narrowed: list[tuple[str, set[str]]]  # by isinstance
    assigned: list[tuple[str, str]]  # `_options`, `options`
    attributes: list[tuple[str, str]]  # `params`, `min_p`
    looked_up_in: set[str]  # of getattr with a name that isn't written there
    strings: set[str]
    imported: set[str]
    named_tuples: dict[str, set[str]]  # defined here, with their fields

    @classmethod
    def of(cls, tree: ast.AST) -> "_File":
        found = cls([], [], [], [], set(), set(), set(), {})
        for node in ast.walk(tree):
            if type(node) not in _MATTER:  # most are none of these, and each pattern takes its time
                continue
            match node:
                case ast.Attribute(attr=name, ctx=ast.Load(), value=value):
                    found.attributes.append((_last(value), name))
                case ast.Assign(targets=[target], value=value):
                    found.assigned.append((_last(target), _last(value)))
                case ast.Call(func=ast.Name(id="isinstance"), args=[value, kind]):
                    found.narrowed.append((_last(value), _names_in(kind)))
                case ast.Constant(value=str(text)):
                    found.strings.add(text)
                case ast.ImportFrom(names=aliases):
                    found.imported.update(alias.name for alias in aliases)
                case ast.ClassDef(name=name, bases=[ast.Name(id="NamedTuple")], body=body):
                    fields = (line.target for line in body if isinstance(line, ast.AnnAssign))
                    found.named_tuples[name] = {_last(target) for target in fields}
                case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(), *_]):
                    pass
                case ast.Call(func=ast.Name(id="getattr"), args=[value, *_]):
                    found.looked_up_in.add(_last(value))
                case (
                    ast.arg(arg=name, annotation=ast.AST() as annotation)
                    | ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation)
                    | ast.FunctionDef(name=name, returns=ast.AST() as annotation)  # a property, perhaps
                ):
                    found.annotations.append((name, _names_in(annotation)))
        return found

    def annotated(self, struct: str) -> set[str]:
        return {name for name, names in self.annotations if struct in names}

    def reads(self, struct: str, holders: set[str], named_tuples: Mapping[str, set[str]]) -> set[str]:
        """`holders` and `named_tuples` are those of all files; a holder may hold something else here."""
        own = self.annotated(struct) | {name for name, kinds in self.narrowed if struct in kinds}
        held = own | (holders - {name for name, _ in self.annotations})
        held |= {name for name, value in self.assigned if value in held}
        named = {name for holder, name in self.attributes if holder in held}
        if not self.looked_up_in & held:
            return named
        return named.union(self.strings, *(named_tuples.get(name, ()) for name in self.imported))


@cache
def _file(text: str) -> _File:
    return _File.of(ast.parse(text))


class Readings:
    """Of one struct, by its name and the file that declares it."""

    def __init__(self, struct: str, declared_in: str, texts: Mapping[str, str]) -> None:
        self._struct = struct
        self._declared = texts[declared_in]
        self._texts = {path: text for path, text in texts.items() if path != declared_in}

    def of(self, names: set[str], left_out: tuple[str, ...] = ()) -> dict[str, set[str]]:
        """The files that read each name; those that begin with one of `left_out` are not looked at."""
        found: dict[str, set[str]] = {name: set() for name in names}
        holds = re.compile(rf"\b({'|'.join(self._holders)})\b")
        for path, text in self._texts.items():
            if not path.startswith(left_out) and holds.search(text):
                for name in _file(text).reads(self._struct, self._holders, self._named_tuples):
                    for each in self._read_by_method.get(name, {name}) & names:
                        found[each].add(path)
        return found

    @cached_property
    def _holders(self) -> set[str]:
        """What holds the struct anywhere, such as the field `params` of a message."""
        naming = (text for text in (self._declared, *self._texts.values()) if self._struct in text)
        return {name for text in naming for name in _file(text).annotated(self._struct)}

    @cached_property
    def _named_tuples(self) -> dict[str, set[str]]:
        defining = (text for text in self._texts.values() if "(NamedTuple)" in text)
        return {name: fields for text in defining for name, fields in _file(text).named_tuples.items()}

    @cached_property
    def _read_by_method(self) -> dict[str, set[str]]:
        """Of the struct itself; what it does when it is made is no use of a field."""
        body = ast.parse(self._declared).body
        [declared] = [node for node in body if isinstance(node, ast.ClassDef) and node.name == self._struct]
        methods = [node for node in declared.body if isinstance(node, ast.FunctionDef) and node.name != "__post_init__"]
        return {
            method.name: {name for holder, name in _File.of(method).attributes if holder == "self"}
            for method in methods
        }


def _names_in(annotation: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


def _last(node: ast.AST) -> str:
    """`params` of `self.prompt.params`, `params_of` of `params_of(value)`; empty for what has no name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return _last(function)
    return ""
