"""kernels/cpu/structs.py says what the C++ sources say."""

import sys
from pathlib import Path

import pytest
from builders.cases import for_each

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import write_structs

SOURCES = {
    "attend.cpp": """#include "base.hpp"

struct Work { int unread; };

struct Attend {
    const Base* base;  // where all begins
    // Of a model whose queries and keys are kept apart from one another in memory that neither of them has made, that
    // is of nearly none.
    Rotation rotation;
    Pair pair;
    static constexpr int64_t kMost = 4;

    int64_t size() const {
        return 4;
    }
    const int64_t* const* ids;  // [2]
    unsigned char* bytes;
    Kernel next;  // [T]: a line that is so long that its comment has to stand above it, though without it the line fits
    Column rows;
};

static const Attend& attend_at(const void* arguments) { return *static_cast<const Attend*>(arguments); }

extern "C" void penstock_attend_fp32(const void* arguments) { attend<float>(attend_at(arguments)); }
extern "C" void penstock_attend_bf16(const void* arguments) { attend<Bf16>(attend_at(arguments)); }
extern "C" void penstock_attend_int8(const void* arguments) {
    attend<Int8>(*static_cast<const penstock::Attend*>(arguments));
}
""",
    "base.hpp": """
enum class Rotation : int64_t { kNone = 0, kOnlyHalves = 1 };

struct Base {
    std::atomic<uint32_t>* counter;
};

// Two of them.
struct Pair {
    int32_t first, second;
};
""",
}
CLASSES = '''\
ROTATION = {"none": 0, "only_halves": 1}


@fields_of_annotations
class Base(Struct):
    """base.hpp"""

    counter: Pointer  # uint32


@fields_of_annotations
class Pair(Struct):
    """base.hpp: Two of them."""

    first: Int32
    second: Int32


@fields_of_annotations
class Attend(Struct):
    """attend.cpp: arguments of penstock_attend_*."""

    base: Pointer  # Base: where all begins
    # Of a model whose queries and keys are kept apart from one another in memory that neither of them has made, that is
    # of nearly none.
    rotation: Int64  # Rotation
    pair: Pair
    ids: Pointer  # int64* [2]
    bytes: Pointer  # uint8
    # Kernel [T]: a line that is so long that its comment has to stand above it, though without it the line fits
    next: Pointer
    rows: Bytes  # Column
'''


def test_the_module_is_what_the_sources_say():
    written = write_structs.MODULE.read_text(encoding="utf-8")
    assert written == write_structs.module(write_structs.read(write_structs.KERNELS / "source")), (
        "kernels/cpu/structs.py is stale: run scripts/write_structs.py"
    )


def test_what_kernels_read_is_written_with_all_that_it_holds_and_points_to():
    assert write_structs.module(SOURCES) == f"{write_structs.HEAD}\n{CLASSES}"


@for_each("field, said", [
    ("Vec first;", "base.hpp: TYPES has no row for Vec, the type of Pair.first"),
    ("uint8_t first[4];", r"no row for uint8_t first\[4\];"),
    ("int32_t first = 0;", "no row for int32_t first = 0;"),
    ("int32_t first,", "no row for int32_t first,"),
])  # fmt: skip
def test_a_field_that_no_rule_stores_is_refused(field, said):
    sources = {name: text.replace("int32_t first, second;", field) for name, text in SOURCES.items()}
    with pytest.raises(SystemExit, match=said):
        write_structs.module(sources)
