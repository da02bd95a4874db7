"""Models in several files: all of them are found by any one, and they must belong together."""

import re

import pytest
from builders.cases import for_each
from builders.gguf_file import Typed, write_gguf, write_parts, zeros

from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.parts import part_number, parts_of, read_model, stem_of

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
    with pytest.raises(ConfigError, match=r"^model-00002-of-00003.gguf is missing beside model-00001-of-00003.gguf"):
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
])  # fmt: skip
def test_parts_that_do_not_belong_together_are_refused(tmp_path, change, sentence):
    with pytest.raises(ConfigError) as refused:
        read_model(parts_of(change(cut(tmp_path))))
    assert re.search(sentence, str(refused.value))
    assert str(tmp_path) not in str(refused.value)
