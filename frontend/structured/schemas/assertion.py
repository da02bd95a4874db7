"""Assertions of keywords: two ways to narrow a branch, to where the keyword holds and to where it fails."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .branches import Branch, Path
from .document import Literals, Schema

Narrowing = Callable[[Any, Path], Sequence[Branch]]


class Assertion(Protocol):
    def holds(self, branch: Branch, path: Path) -> Sequence[Branch]: ...

    def fails(self, branch: Branch, path: Path) -> Sequence[Branch]: ...


class Expansion(Protocol):
    """The part of `expansion.py` that keywords need."""

    def literal(self, schema: Any, location: str, *, holds: bool = True) -> Literals: ...

    def narrow(self, literals: Literals, branches: Iterable[Branch], path: Path) -> list[Branch]: ...

    def branches(self, literals: Literals) -> Sequence[Branch]: ...

    def is_empty(self, literals: Literals) -> bool: ...

    def kept(self, branches: Iterable[Branch], narrowed: Narrowing, path: Path) -> list[Branch]: ...

    def are_apart(self, one: Branch, other: Branch) -> bool: ...

    def matches(self, pattern: str, text: str) -> bool: ...

    def expression(self, found: Sequence[str], not_found: Sequence[str]) -> str: ...

    def target(self, schema: Schema, reference: Any) -> Any: ...


# Takes a keyword's value, the schema around it, the keyword's location, and an expansion. None: it asserts nothing.
Reading = Callable[[Any, Schema, str, Expansion], Assertion | None]


@dataclass(frozen=True, slots=True)
class OfType:
    """A keyword that restricts values of one type and no others."""

    type: type
    narrowed: Narrowing
    violated: Narrowing

    def holds(self, branch: Branch, path: Path) -> Sequence[Branch]:
        return self.narrowed(branch, path) if isinstance(branch, self.type) else (branch,)

    def fails(self, branch: Branch, path: Path) -> Sequence[Branch]:
        return self.violated(branch, path) if isinstance(branch, self.type) else ()
