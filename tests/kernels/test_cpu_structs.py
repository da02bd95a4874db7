"""kernels/cpu/structs.py says what the C++ sources say."""

import sys
from pathlib import Path

import pytest
from builders.cases import for_each

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import write_structs


def test_the_module_is_what_the_sources_say():
    written = write_structs.MODULE.read_text(encoding="utf-8")
    assert written == write_structs.module(write_structs.read(write_structs.KERNELS / "source")), (
        "kernels/cpu/structs.py is stale: run scripts/write_structs.py"
    )


SOURCE = """
struct Pair {
    int32_t first, second;
};

extern "C" void penstock_attend(const void* arguments) {
    attend(*static_cast<const Pair*>(arguments));
}
"""


@for_each("field, said", [
    ("Vec first;", "pair.cpp: TYPES has no row for Vec, the type of Pair.first"),
    ("uint8_t first[4];", r"no row for uint8_t first\[4\];"),
    ("int32_t first = 0;", "no row for int32_t first = 0;"),
    ("int32_t first,", "no row for int32_t first,"),
])  # fmt: skip
def test_a_field_that_no_rule_stores_is_refused(field, said):
    assert "first: Int32\n    second: Int32" in write_structs.module({"pair.cpp": SOURCE})
    with pytest.raises(SystemExit, match=said):
        write_structs.module({"pair.cpp": SOURCE.replace("int32_t first, second;", field)})
