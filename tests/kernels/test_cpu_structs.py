"""Each ctypes struct of kernels/cpu against the C++ struct that it mirrors: fields, order, types, offsets and size."""

import ctypes
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from builders.cases import for_each

import penstock.kernels.cpu as cpu
from penstock.kernels.cpu.build import SOURCE, compiler

# The integers and floats that fields are made of; what ends in * is an address.
NUMBERS = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float}
ADDRESSES = (ctypes.c_void_p, ctypes.c_char_p)


class Field(NamedTuple):
    name: str
    type: object


class Source(NamedTuple):
    """A struct as it stands in a file."""

    path: Path
    text: str
    fields: list[Field]  # their types in C++'s words


def sources() -> dict[str, Source]:
    found = {}
    for path in sorted(SOURCE.glob("*.[ch]pp")):
        for match in re.finditer(r"^struct (\w+) \{\n(.*?)^\};", path.read_text(), re.MULTILINE | re.DOTALL):
            found.setdefault(match[1], Source(path, match[0], list(fields_of(match[2]))))
    return found


def fields_of(body: str) -> Iterator[Field]:
    plain = re.sub(r"//.*", "", body)
    for declaration in re.sub(r"\{[^{}]*\}", "", plain).split(";"):
        # A method has parentheses.
        if (match := re.fullmatch(r"\s*([\w:<>*\s]+?)(\w+)\s*", declaration)) and "(" not in declaration:
            yield Field(match[2], match[1].strip())


def enums() -> dict[str, Source]:
    """Those that are stored as an int64."""
    found = {}
    for path in sorted(SOURCE.glob("*.[ch]pp")):
        for match in re.finditer(r"^enum class (\w+) : int64_t \{.*?\};", path.read_text(), re.MULTILINE | re.DOTALL):
            found[match[1]] = Source(path, match[0], [])
    return found


def structures() -> dict[str, type[ctypes.Structure]]:
    """The mirrors by their C++ names."""
    found = {}
    room = Path(cpu.__path__[0])
    for path in sorted(room.rglob("[a-z]*.py")):
        module = ".".join((cpu.__name__, *path.relative_to(room).with_suffix("").parts))
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, type) and issubclass(value, ctypes.Structure) and value is not ctypes.Structure:
                found[name.strip("_").removesuffix("Arguments")] = value
    return found


SOURCES, ENUMS, MIRRORS = sources(), enums(), structures()
# Groups of columns that the C++ struct has one by one.
INLINED = {"Parameters"}
COMPARED = sorted(set(MIRRORS) - INLINED)


def mirrored(structure: type[ctypes.Structure]) -> Iterator[tuple[Field, int]]:
    """The fields with their offsets; those of an inlined struct in its place."""
    for name, kind in structure._fields_:  # type: ignore[misc]
        offset = getattr(structure, name).offset
        if getattr(kind, "__name__", "") in INLINED:
            yield from ((field, offset + inner) for field, inner in mirrored(kind))
        else:
            yield Field(name, kind), offset


def is_like(kind: object, word: str) -> bool:
    word = word.removeprefix("const ").strip()
    if word.endswith("*") or word == "Kernel":
        return kind in ADDRESSES
    if word in NUMBERS or word in ENUMS:
        return kind is NUMBERS.get(word, ctypes.c_int64)
    return kind is MIRRORS.get(word)


@for_each("name", COMPARED)
def test_a_struct_has_the_fields_of_its_source_in_their_order(name):
    expected, found = SOURCES[name].fields, [field for field, _ in mirrored(MIRRORS[name])]
    assert [field.name for field in found] == [field.name for field in expected], SOURCES[name].path.name
    unlike = [(mine, its) for mine, its in zip(found, expected, strict=True) if not is_like(mine.type, its.type)]
    assert not unlike, SOURCES[name].path.name


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_the_compiler_lays_every_struct_out_as_ctypes_does(tmp_path):
    """Headers are included; a struct of a .cpp file is taken from there by its text."""
    headers = sorted({SOURCES[name].path.name for name in COMPARED if SOURCES[name].path.suffix == ".hpp"})
    own = [name for name in SOURCES if name in COMPARED and SOURCES[name].path.suffix == ".cpp"]
    lines = ["#include <atomic>", "#include <cstddef>"] + [f'#include "{header}"' for header in headers]
    lines += ["namespace penstock {", *(enum.text for enum in ENUMS.values() if enum.path.suffix == ".cpp")]
    lines += [SOURCES[name].text for name in in_order(own)]
    for name in COMPARED:
        lines.append(f'static_assert(sizeof({name}) == {ctypes.sizeof(MIRRORS[name])}, "{name}");')
        for field, offset in mirrored(MIRRORS[name]):
            lines.append(f'static_assert(offsetof({name}, {field.name}) == {offset}, "{name}.{field.name}");')
    unit = tmp_path / "structs.cpp"
    unit.write_text("\n".join([*lines, "}"]))
    command = [compiler(), "-std=c++17", "-fsyntax-only", f"-I{SOURCE}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def in_order(names: list[str]) -> list[str]:
    """Each behind those that it holds."""
    ordered: list[str] = []
    while len(ordered) < len(names):
        ordered += [
            name
            for name in names
            if name not in ordered
            and all(field.type not in names or field.type in ordered for field in SOURCES[name].fields)
        ]
    return ordered
