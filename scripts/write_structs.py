"""Write kernels/cpu/structs.py from the C++ structs that native kernels read, so that the two cannot differ.

    python scripts/write_structs.py            # write the module
    python scripts/write_structs.py --check    # tell by the exit status whether it is stale

A struct belongs there if a function of the library casts its argument to it, or if such a struct holds it or points to
it. Fields become annotated types, their comments go along, and an enum that is stored as an int64 becomes a dict.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1] / "kernels" / "cpu"
MODULE = KERNELS / "structs.py"
WIDTH = 120

HEAD = '''\
"""The C++ structs that native kernels read, in the order of their headers. Fields point to what their comments say.

This file is written by `scripts/write_structs.py` from kernels/cpu/source.
"""

from .library import Bytes, Float32, Int32, Int64, Pointer, Struct, fields_of_annotations
'''

# What a field is in Python. Plans bring a `Column` as bytes.
TYPES = {"int32_t": "Int32", "int64_t": "Int64", "float": "Float32", "Column": "Bytes", "Kernel": "Pointer"}
WORDS = {"float": "float32", "double": "float64", "char": "uint8", "void": ""}

_ENUM = re.compile(r"^enum class (\w+) : int64_t \{(.*?)\};", re.MULTILINE | re.DOTALL)
_STRUCT = re.compile(r"((?:^// [^\n]*\n)*)^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r" {4}(\w[\w:<>* ]*[ *])(\w+(?:, \w+)*);(?: *// (.*))?")
# Functions, which have brackets or lines that stand deeper, and what belongs to no struct of its own.
_NOT_STORED = re.compile(r"$| {5}| {4}(static|using|template|})|[^/]*\(|#")
# A function of the library, or one that it calls with its argument.
_FUNCTION = re.compile(r"(\w+)\(const void\* arguments\) \{(.*?\})$", re.MULTILINE | re.DOTALL)
_CAST = re.compile(r"static_cast<const (?:penstock::)?(\w+)\*>\(arguments\)")
_CALL = re.compile(r"(\w+)(?:<[\w:]+>)?\(arguments\)")


@dataclass
class Field:
    type: str
    name: str
    comment: str  # behind it
    above: list[str]  # the lines of comment before it


@dataclass
class Struct:
    file: str
    name: str
    comment: str
    fields: list[Field]
    kernels: list[str] = field(default_factory=list)


@dataclass
class Sources:
    enums: dict[str, dict[str, int]]  # the numbers by their names
    structs: dict[str, Struct]  # each behind those that it holds


def main() -> int:
    parser = argparse.ArgumentParser(description="Write kernels/cpu/structs.py from the C++ sources.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the module is stale")
    written = module(read(KERNELS / "source"))
    if parser.parse_args().check:
        is_stale = MODULE.read_text(encoding="utf-8") != written
        print(f"{MODULE} is " + ("stale: run scripts/write_structs.py" if is_stale else "up to date"))
        return int(is_stale)
    MODULE.write_text(written, encoding="utf-8")
    return 0


def read(folder: Path) -> dict[str, str]:
    """The sources by their names."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.[ch]pp"))}


def module(texts: Mapping[str, str]) -> str:
    """The whole file."""
    sources = parsed(texts)
    needed = set(reached(sources))
    enums = [enum(name, numbers) for name, numbers in sources.enums.items() if name in needed]
    structs = ["\n".join(class_lines(each, sources)) for each in sources.structs.values() if each.name in needed]
    return HEAD + "\n" + "\n".join(enums) + "\n\n\n" + "\n\n\n".join(structs) + "\n"


# --- from C++ ---------------------------------------------------------------------------------------------------------


def parsed(texts: Mapping[str, str]) -> Sources:
    ordered = {name: texts[name] for name in in_order(texts)}
    enums, structs = {}, {}
    for file, text in ordered.items():
        for match in _ENUM.finditer(text):
            enums[match[1]] = {snake(name): int(number) for name, number in re.findall(r"k(\w+) = (\d+)", match[2])}
        for match in _STRUCT.finditer(text):
            comment = " ".join(match[1].replace("// ", "").split())
            structs.setdefault(match[2], Struct(file, match[2], comment, list(fields(match[3]))))
    for kernel, name in sorted(kernels(ordered).items()):
        structs[name].kernels.append(kernel)
    return Sources(enums, structs)


def in_order(texts: Mapping[str, str]) -> dict[str, None]:
    """The names of the files, each behind those that it includes."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for included in re.findall(r'^#include "(.+)"', texts[name], re.MULTILINE):
            if included not in found:
                visit(included)
        found[name] = None

    for name in sorted(texts):
        visit(name)
    return found


def fields(body: str) -> Iterator[Field]:
    """The fields of a struct. A line that isn't understood becomes a field of an unknown type."""
    above: list[str] = []
    for line in body.splitlines():
        if line.startswith("    // "):
            above.append(line.removeprefix("    // "))
            continue
        if not _NOT_STORED.match(line):
            type, names, comment = match.groups() if (match := _FIELD.fullmatch(line)) else (line, "?", "")
            for name in names.split(", "):
                yield Field(type.strip(), name, comment or "", above)
                above = []
        above = []


def kernels(texts: Mapping[str, str]) -> dict[str, str]:
    """The functions of the library, each with the struct that its argument is."""
    found: dict[str, str] = {}
    for text in texts.values():
        casts: dict[str, str] = {}
        for name, body in _FUNCTION.findall(text):
            cast, call = _CAST.search(body), _CALL.search(body)
            casts[name] = cast[1] if cast else casts[call[1]] if call else ""
        found |= {name: struct for name, struct in casts.items() if name.startswith("penstock_")}
    return found


def reached(sources: Sources) -> Iterator[str]:
    """Structs that kernels read, whatever those hold or point to, and their enums."""
    waiting = [each.name for each in sources.structs.values() if each.kernels]
    seen = set(waiting)
    while waiting:
        yield (name := waiting.pop())
        kinds = {pointed_to(each.type) for each in (sources.structs[name].fields if name in sources.structs else ())}
        new = (kinds & (sources.structs.keys() | sources.enums.keys())) - seen
        seen |= new
        waiting += new


# --- to Python --------------------------------------------------------------------------------------------------------


def enum(name: str, numbers: Mapping[str, int]) -> str:
    rows = ", ".join(f'"{key}": {number}' for key, number in numbers.items())
    return f"{snake(name).upper()} = {{{rows}}}"


def class_lines(struct: Struct, sources: Sources) -> Iterator[str]:
    yield "@fields_of_annotations"
    yield f"class {struct.name}(Struct):"
    opening = " ".join(filter(None, (read_by(struct.kernels), struct.comment)))
    yield from wrapped(f'"""{struct.file}{opening and ": "}{opening}"""')
    yield ""
    for each in struct.fields:
        yield from field_lines(struct, each, sources)


def read_by(kernels: list[str]) -> str:
    """Kernels for several formats begin alike."""
    if len(kernels) <= 2:
        return f"arguments of {' and '.join(kernels)}." if kernels else ""
    common = kernels[0]
    while not all(name.startswith(common) for name in kernels):
        common = common[: common.rstrip("_").rindex("_") + 1]
    return f"arguments of {common}*."


def field_lines(struct: Struct, each: Field, sources: Sources) -> Iterator[str]:
    stored, comment = python_type(struct, each, sources), each.comment
    if name := named(each.type, stored):
        between = "" if not comment else " " if comment.startswith("[") else ": "
        comment = f"{name}{between}{comment}"
    line = f"    {each.name}: {stored}" + (f"  # {comment}" if comment else "")
    yield from wrapped(" ".join(each.above), "# ")
    if len(line) > WIDTH:
        yield from wrapped(comment, "# ")
        line = line.partition("  #")[0]
    yield line


def python_type(struct: Struct, each: Field, sources: Sources) -> str:
    if each.type.endswith("*"):
        return "Pointer"
    if each.type in sources.enums:
        return "Int64"
    if each.type in sources.structs:
        return each.type
    if each.type not in TYPES:
        raise SystemExit(f"{struct.file}: TYPES has no row for {each.type}, the type of {struct.name}.{each.name}.")
    return TYPES[each.type]


def named(type: str, stored: str) -> str:
    """The type that a field points to, or the name of its enum or its alias."""
    if stored == type or (stored == TYPES.get(type) and stored not in ("Pointer", "Bytes")):
        return ""
    return re.sub(r"[a-z]\w*", lambda word: WORDS.get(word[0], word[0].removesuffix("_t")), pointed_to(type))


def pointed_to(type: str) -> str:
    """`T` of T, const T* and std::atomic<T>*; `T*` of const T* const*."""
    words = re.sub(r"const|unsigned|std::atomic|[ <>]", "", type)
    return words.removesuffix("*")


def wrapped(text: str, mark: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"    {mark}", subsequent_indent=f"    {mark}")


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


if __name__ == "__main__":
    sys.exit(main())
