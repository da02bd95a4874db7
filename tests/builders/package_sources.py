"""Reads the package's sources, and imports none of them: which files and modules there are, and who imports whom."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("protocol", "engine", "worker", "kernels", "frontend", "allspark", "cluster")
FACE = Path("__init__.py")  # by which users, and type checkers, find what lies in the rooms


@cache
def package_files() -> list[Path]:
    """Every source file of the package, relative to the root."""
    own = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return [path.relative_to(ROOT) for path in (*sorted(ROOT.glob("*.py")), *own)]


def all_files() -> list[Path]:
    others = [path for folder in ("tests", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [*package_files(), *(path.relative_to(ROOT) for path in others)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(source(path), filename=str(path))


@cache
def source(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def statements(path: Path) -> tuple[ast.AST, ...]:
    """All of a file, a block before what is in it; a tenth of its nodes, for no expression holds a statement."""
    found: list[ast.AST] = [parsed(path)]
    for node in found:  # grows meanwhile
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            found += getattr(node, name, ())
    return tuple(found)


def attributes(path: Path, *ends: str) -> Iterator[tuple[str, int]]:
    """Dotted expressions that end so, each with its line."""
    if any(end in source(path) for end in ends):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and (text := ast.unparse(node)).endswith(ends):
                yield text, node.lineno


def room_of(path: Path) -> str:
    """The room's name, or "" for the files at the root."""
    return path.parts[0] if len(path.parts) > 1 else ""


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Whole module names, relative ones resolved to `penstock.…`, each with its line."""
    return tuple(_imported_by(path))


def _imported_by(path: Path) -> Iterator[tuple[str, int]]:
    package = ("penstock", *path.parts[:-1])
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or "", node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level])
            # A module is imported by its own name, or for what it holds.
            home = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                named = f"{home}.{alias.name}"
                yield named if named in modules() else home, node.lineno


def is_in(path: Path, homes: set[str]) -> bool:
    """Tell whether a file is one of these, or lies in one of these rooms."""
    return any(each.as_posix() in homes for each in (path, *path.parents))


def imported_for_types(path: Path) -> set[int]:
    """The lines of imports that only type checkers see."""
    checks = (node for node in statements(path) if isinstance(node, ast.If))
    return _lines_of_imports(node for node in checks if "TYPE_CHECKING" in ast.unparse(node.test))


def imported_on_demand(path: Path) -> set[int]:
    """These lines, and those within functions: loading the file does without them."""
    return imported_for_types(path) | _lines_of_imports(functions(path))


def _lines_of_imports(nodes: Iterable[ast.AST]) -> set[int]:
    found = (inner for node in nodes for inner in ast.walk(node))
    return {inner.lineno for inner in found if isinstance(inner, (ast.Import, ast.ImportFrom))}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in statements(path) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


@cache
def modules() -> dict[str, Path]:
    """The package's modules by their dotted names."""
    names = {path: ".".join(("penstock", *path.with_suffix("").parts)) for path in package_files()}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


@cache
def modules_imported_by(path: Path) -> dict[str, bool]:
    """Modules of the package that it imports, in functions too; of each whether only type checkers see that."""
    for_types = imported_for_types(path)
    found: dict[str, bool] = {}
    for name, line in imports(path):
        if name in modules():
            found[name] = found.get(name, True) and line in for_types
    return found


def reached_from(start: Path) -> set[Path]:
    """The files that it imports, and those that they import, types included."""
    found, waiting = set(), [start]
    while waiting:
        for name in modules_imported_by(waiting.pop()):
            if (path := modules()[name]) not in found and path != FACE:
                found.add(path)
                waiting.append(path)
    return found
