"""Each ctypes struct of kernels/cpu against the C++ struct that it mirrors: fields, order, types, offsets and size."""

import ctypes
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.kernels.cpu as cpu
from penstock.kernels.cpu.build import SOURCE, compiler

# Whether a field's type is like one of ctypes; enums are stored as an int64.
CHECKS = """
template <class T> constexpr bool is_int32 = std::is_same_v<T, int32_t>;
template <class T> constexpr bool is_int64 = std::is_same_v<T, int64_t> || std::is_enum_v<T>;
template <class T> constexpr bool is_float = std::is_same_v<T, float>;
template <class T> constexpr bool is_address = std::is_pointer_v<T>;
"""
LIKE = {
    ctypes.c_int32: "is_int32", ctypes.c_int64: "is_int64", ctypes.c_float: "is_float", ctypes.c_void_p: "is_address",
    ctypes.c_char_p: "is_address",
}  # fmt: skip


def sources() -> dict[str, tuple[Path, str]]:
    """Structs, and enums that are stored as an int64: where and as they stand; those of a file in its order."""
    found: dict[str, tuple[Path, str]] = {}
    for path in sorted(SOURCE.glob("*.[ch]pp")):
        for pattern in (r"^enum class (\w+) : int64_t \{.*?\};", r"^struct (\w+) \{\n.*?^\};"):
            for match in re.finditer(pattern, path.read_text(), re.MULTILINE | re.DOTALL):
                found.setdefault(match[1], (path, match[0]))
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
    return dict(sorted(found.items()))


def mirrored(structure: type[ctypes.Structure]) -> Iterator[tuple[str, type, int]]:
    """The fields with their types and offsets."""
    for name, kind in structure._fields_:  # type: ignore[misc]
        yield name, kind, getattr(structure, name).offset


def checked(name: str, mirror: type[ctypes.Structure], names: dict[type, str]) -> Iterator[str]:
    """Sizes that agree leave no room for a field that only C++ has, and offsets none for another order."""
    yield f'static_assert(sizeof({name}) == {ctypes.sizeof(mirror)}, "{name}");'
    for field, kind, offset in mirrored(mirror):
        type = f"decltype({name}::{field})"
        is_like = f"{LIKE[kind]}<{type}>" if kind in LIKE else f"std::is_same_v<{type}, {names[kind]}>"
        yield f'static_assert(offsetof({name}, {field}) == {offset} && {is_like}, "{name}.{field}");'


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_the_compiler_lays_every_struct_out_as_ctypes_does(tmp_path):
    """Headers are included; a struct of a .cpp file is taken from there by its text, with the enums."""
    found, mirrors = sources(), structures()
    assert len(mirrors) > 40
    headers = sorted({found[name][0].name for name in mirrors if found[name][0].suffix == ".hpp"})
    own = [
        name for name, (path, text) in found.items() if path.suffix == ".cpp" and (name in mirrors or "enum" in text)
    ]
    names = {mirror: name for name, mirror in mirrors.items()}
    lines = ["#include <atomic>", "#include <cstddef>", "#include <type_traits>", *map('#include "{}"'.format, headers)]
    lines += [CHECKS, "namespace penstock {", *(found[name][1] for name in own)]
    lines += [line for name, mirror in mirrors.items() for line in checked(name, mirror, names)]
    unit = tmp_path / "structs.cpp"
    unit.write_text("\n".join([*lines, "}"]))
    command = [compiler(), "-std=c++17", "-fsyntax-only", f"-I{SOURCE}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
