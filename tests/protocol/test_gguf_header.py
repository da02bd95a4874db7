"""The header of a GGUF file: all that the format can say is read, and what can't be right is one sentence.

Within bounded memory, and quickly, however it was broken. Of models in several files all are found by any one.
"""

import os
import re
import resource
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.gguf_file import NUMBERS, Octets, Typed, gguf_bytes, text, value, write_gguf, write_parts, zeros
from builders.gguf_mutations import FOLDER, is_read, mutated, right_file

from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.header import is_gguf, read_header
from penstock.protocol.files.gguf.parts import part_number, parts_of, read_model, stem_of
from penstock.protocol.files.gguf.types import BY_NAME
from penstock.protocol.processes.bounded_process import address_space


@pytest.fixture
def path(tmp_path):
    (tmp_path / FOLDER).mkdir()
    return tmp_path / FOLDER / "model.gguf"


def refusal(path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_header(path)
    said = str(refused.value)
    assert said.startswith("model.gguf can't be used: it "), said
    assert said.endswith(".") and "\n" not in said and FOLDER not in said and len(said) < 400, said
    return said


@for_each("version", [2, 3])
def test_every_type_of_metadata_is_read(path, version):
    whole = [name for name, (_, letter) in NUMBERS.items() if letter and letter.upper() in "BHIQ"]
    metadata = {
        **{name: Typed(name, 100) for name in whole},
        **{f"{name} list": Typed(name, [1, 2, 100]) for name in whole},
        "float": 0.5,
        "wide float": Typed("FLOAT64", 0.1),
        "floats": [0.5, -2.0],
        "yes": True,
        "list": [True, False],
        "text": "Grüße",
        "texts": ["a", "", "b" * 3000],
        "none": [],
    }
    read = read_header(write_gguf(path, metadata, version=version))
    assert read.version == version
    assert read.metadata == {name: each.value if isinstance(each, Typed) else each for name, each in metadata.items()}
    assert [type(read.metadata[name]) for name in ("yes", "float", "UINT8")] == [bool, float, int]


@for_each("alignment", [1, 8, 32, 4096])
def test_a_tensor_of_every_type_lies_where_it_was_written(path, alignment):
    tensors = {}
    for name, kind in BY_NAME.items():
        shape = (3, 2 * kind.block_elements)
        tensors[name] = Octets(shape, name, os.urandom(kind.nbytes(3 * shape[1])))
    tensors |= {f"F32 {shape}": zeros(shape) for shape in [(), (7,), (2, 3, 32), (5, 2, 3, 32)]}
    read = read_header(write_gguf(path, {}, tensors, alignment=alignment)).tensors
    content = path.read_bytes()
    assert [each.name for each in read] == list(tensors)
    for each in read:
        assert each.type == each.name.partition(" ")[0] and each.shape == tensors[each.name].shape
        assert each.offset % alignment == 0
        assert content[each.offset : each.offset + each.nbytes] == tensors[each.name].content


def test_texts_that_are_no_utf_8_are_read_and_names_that_are_none_or_can_not_be_printed_are_refused(path):
    path.write_bytes(gguf_bytes([("general.author", b"M\xfcller")]))
    assert read_header(path).metadata == {"general.author": "M\ufffdller"}
    for name in (b"M\xfcller", "a\x00b", "red\x1b[31m", "two\nlines", "\u202eturned"):
        for content in (gguf_bytes([(name, 1)]), gguf_bytes([], [(name, zeros((1,)))])):
            said = refusal(path, content)
            assert ("not UTF-8" if isinstance(name, bytes) else "can't be printed") in said and said.isprintable()


@contextmanager
def address_space_limit(more_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def head(num_tensors: int, num_keys: int, *rest: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys) + b"".join(rest)


def tensor(name: str, dimensions: list[int], number: int, offset: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + shape + struct.pack("<IQ", number, offset)


ROOM = bytes(4096)
TEXT = struct.pack("<I", 8)


def listed(kind: int, count: int) -> bytes:
    return text("key") + struct.pack("<IIQ", 9, kind, count)


REFUSED = {
    "nothing at all": (b"", "does not begin as a GGUF file"),
    "only the magic": (b"GGUF", "ends after 4 bytes"),
    "version 1": (head(0, 0, version=1), "version 1 .*2 or 3"),
    "a version to come": (head(0, 0, version=4), "version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "too many keys": (head(0, 2**63, ROOM), r"9,223,372,036,854,775,808 keys"),
    "more keys than bytes": (head(0, 60_000, ROOM), "60,000 keys, for which it is too short"),
    "too many tensors": (head(2**64 - 1, 0, ROOM), "tensors, and no model has more"),
    "more tensors than bytes": (head(99_999, 0, ROOM), "99,999 tensors, for which it is too short"),
    "a key without a name": (head(0, 1, text(""), value(1)), "name of a key with 0 bytes"),
    "a key of a gigabyte": (head(0, 1, struct.pack("<Q", 2**30), ROOM), "name of a key with 1,073,741,824 bytes"),
    "the same key twice": (gguf_bytes([("key", 1), ("key", 2)]), "key 'key' twice"),
    "an unknown type": (head(0, 1, text("key"), struct.pack("<I", 13), ROOM), r"unknown type 13 \(at the key 'key'\)"),
    "a text beyond the end": (head(0, 1, text("key"), TEXT, struct.pack("<Q", 2**63), ROOM), "amid its header"),
    "a list beyond the end": (head(0, 1, listed(10, 3_999_999), ROOM), "amid its header"),
    "a list too long": (head(0, 1, listed(0, 2**62), ROOM), "more than 4,000,000 elements"),
    "texts beyond the end": (head(0, 1, listed(8, 10**6), ROOM), "1,000,000 texts"),
    "lists of lists": (head(0, 1, listed(9, 1), ROOM), "a list of lists"),
    "half true": (head(0, 1, text("key"), struct.pack("<IB", 7, 2)), "2 where true"),
    "the same tensor twice": (gguf_bytes([], [("w", zeros((1,)))] * 2), "tensor 'w' twice"),
    "a name without end": (gguf_bytes([], [("w" * 300, zeros((1,)))]), "tensor with 300 bytes"),
    "five dimensions": (head(1, 0, tensor("w", [1] * 5, 0), ROOM), "5 dimensions"),
    "no elements": (head(1, 0, tensor("w", [32, 0], 0), ROOM), "no elements"),
    "a type to come": (head(1, 0, tensor("w", [32], 999), ROOM), "not known here .number 999"),
    "a type given up": (head(1, 0, tensor("w", [32], 31), ROOM), "Q4_0_4_4"),
    "half a block": (head(1, 0, tensor("w", [128, 2], 12), ROOM), "multiple of 256"),
    "beside the alignment": (head(1, 0, tensor("w", [32], 0, offset=8), ROOM), "no multiple of 32"),
    "beyond the end": (head(1, 0, tensor("w", [32], 0, offset=8192), ROOM), "it is incomplete"),
    "a product that wraps": (head(1, 0, tensor("w", [2**63, 2**63, 2, 2], 0), ROOM), "it is incomplete"),
    "one over another": (head(2, 0, tensor("v", [64], 0), tensor("w", [64], 0, offset=128), ROOM), "'v' and 'w'"),
    **{
        f"alignment {wrong!r}": (gguf_bytes([("general.alignment", wrong)]), "general.alignment=.*power of two")
        for wrong in (0, 24, 2**31, 1.0, True, "32", [32], Typed("INT32", -32))
    },
}


@for_each("case", REFUSED)
def test_a_header_that_can_not_be_right_is_refused_in_a_sentence(path, case):
    content, says = REFUSED[case]
    assert re.search(says, said := refusal(path, content)), said


def test_a_header_that_claims_gigabytes_takes_no_memory(path):
    """A sparse file has room for whatever is claimed."""
    assert is_gguf(write_gguf(path, {}))
    path.write_bytes(head(0, 1, text("key"), TEXT, struct.pack("<Q", 2**34)))
    os.truncate(path, 1 << 36)
    with address_space_limit(256 << 20), pytest.raises(ConfigError, match="more than 128 MiB"):
        read_header(path)


@pytest.mark.long
def test_a_list_of_as_many_texts_as_there_may_be_takes_bounded_memory(path):
    path.write_bytes(head(0, 2, listed(8, 3_999_999)))
    os.truncate(path, 1 << 36)
    with address_space_limit(512 << 20), pytest.raises(ConfigError, match="name of a key with 0 bytes"):
        read_header(path)


@for_each("kind", ["a pipe", "a folder", "missing", "a device"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "model.gguf"
    make = {"a pipe": os.mkfifo, "a folder": os.mkdir, "a device": lambda path: path.symlink_to("/dev/zero")}
    make.get(kind, lambda path: None)(path)
    assert not is_gguf(path)
    with pytest.raises(ConfigError, match=r"^model.gguf can't be (used: it is not a regular file|read: .*)\. "):
        read_header(path)


# --- broken headers by the thousands ---------------------------------------------------------------------------------

GUIDED = 100_000


@pytest.mark.parametrize("seeds", [range(400), pytest.param(range(400, 10_400), marks=pytest.mark.long)], ids=len)
def test_hundreds_or_thousands_of_broken_headers_end_in_a_sentence_each(path, seeds):
    path.write_bytes(right_file())
    read_header(path)
    with address_space_limit(512 << 20):
        num_read = sum(is_read(path, mutated(seed), f"seed {seed}") for seed in seeds)
    assert 0 < num_read < len(seeds) / 2, f"{num_read} of {len(seeds)} were read: what changes nothing tests nothing"


@pytest.mark.long
def test_headers_that_reach_ever_more_lines_end_in_a_sentence_each(tmp_path):
    pytest.importorskip("atheris", reason="needs penstock[fuzz]")
    command = [sys.executable, "-m", "builders.fuzz_gguf", str(tmp_path), str(GUIDED)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {GUIDED} runs" in done.stderr, done.stderr[-3000:]


# --- models in several files, which must belong together --------------------------------------------------------------


TENSORS = {name: zeros((2, 32)) for name in "abcde"}


def cut(folder, name="model"):
    parts = [{"a": TENSORS["a"], "b": TENSORS["b"]}, {"c": TENSORS["c"]}, {"d": TENSORS["d"], "e": TENSORS["e"]}]
    return write_parts(folder, name, {"general.architecture": "llama"}, parts)


def test_a_model_in_parts_is_found_by_any_of_them(tmp_path):
    files = cut(tmp_path)
    assert {parts_of(file) for file in files} == {tuple(files)}
    assert [part_number(file.name) for file in files] == [(1, 3), (2, 3), (3, 3)]
    assert {stem_of(file.name) for file in files} == {"model"}
    model = read_model(parts_of(files[0]))
    assert model.metadata["general.architecture"] == "llama"
    assert {name: files.index(each.file) for name, each in model.tensors.items()} == dict(zip("abcde", (0, 0, 1, 2, 2)))


def test_missing_parts_are_named_and_names_of_parts_that_can_not_be_are_refused(tmp_path):
    files = cut(tmp_path)
    files[1].unlink()
    with pytest.raises(ConfigError, match=r"^model-00002-of-00003.gguf is missing next to model-00001-of-00003.gguf"):
        parts_of(files[0])
    files[2].unlink()
    with pytest.raises(ConfigError, match=r"\(and 1 more\) is missing"):
        parts_of(files[0])
    for name in ("m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-00001-of-99999.gguf"):
        with pytest.raises(ConfigError, match=r"by its name it is part \d+ of \d+"):
            parts_of(tmp_path / name)


def renamed(files):
    files[0].rename(files[0].with_name("model.gguf"))
    return files[0].with_name("model.gguf")


def exchanged(files):
    first = files[1].read_bytes()
    files[1].write_bytes(files[2].read_bytes())
    files[2].write_bytes(first)
    return files[0]


def second_part(count, tensors):
    def changed(files):
        write_gguf(files[1], {"split.no": Typed("UINT16", 1), "split.count": Typed("UINT16", count)}, tensors)
        return files[0]

    return changed


@for_each("change, sentence", [
    (renamed, "^model.gguf can't be used: it says that it is one of 3 parts, and by its name it is one of 1"),
    (exchanged, "^model-00002-of-00003.gguf can't be used: it says that it is another part"),
    (second_part(7, {"c": TENSORS["c"]}), "^model-00002-of-00003.gguf .* it says that it is one of 7 parts"),
    (second_part(3, {"a": TENSORS["a"]}), "a tensor lies in two of its parts"),
    (second_part(3, {}), "its parts have 4 tensors, and it names 5"),
    (second_part(3, {"c": TENSORS["c"], "f": TENSORS["c"]}), "its parts have 6 tensors, and it names 5"),
])  # fmt: skip
def test_parts_that_do_not_belong_together_are_refused(tmp_path, change, sentence):
    with pytest.raises(ConfigError) as refused:
        read_model(parts_of(change(cut(tmp_path))))
    assert re.search(sentence, str(refused.value))
    assert str(tmp_path) not in str(refused.value)
