"""What is wrong with a model's files is said as what it is, before anything of them is read."""

import pytest
from builders.cases import for_each
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError, ModelNotFoundError, OutOfMemoryError
from penstock.protocol.options.config import EngineConfig
from penstock.worker.start.demand import Demand
from penstock.worker.start.load import load_model
from penstock.worker.start.memory.weights_fit import check_weights
from penstock.worker.survey import survey

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 988097824\n"


def refused(folder, sentence, kind=ConfigError):
    """By a load, and by the survey that `penstock models` asks."""
    with pytest.raises(kind, match=sentence):
        load_model(folder)
    (found,) = survey([str(folder)], with_torch=False).models
    assert found.refusal is not None
    return found.refusal


def test_a_pointer_of_git_lfs_in_place_of_a_file_is_named(tmp_path):
    tiny_model(tmp_path / "whole", "llama")
    (tmp_path / "whole" / "model.safetensors").write_text(POINTER)
    folder = tiny_model(tmp_path / "shards", "llama", shards=3)
    (folder / "model-00003-of-00003.safetensors").write_text(POINTER)
    for each in (tmp_path / "whole", folder):
        assert "Git-LFS pointer" in refused(each, r"safetensors is a Git-LFS pointer.* `git lfs pull`")
    for name in ("model.safetensors.index.json", "config.json"):
        (folder / name).write_text(POINTER)
        refused(folder, rf"{name} is a Git-LFS pointer")


@for_each("shards", [1, 3])
@for_each("kept", [0, 3, 8, 500, 0.5, 0.999, -1])
def test_a_truncated_file_is_named_with_its_length(tmp_path, shards, kept):
    tiny_model(tmp_path, "qwen3", shards=shards)
    path = sorted(tmp_path.glob("*.safetensors"))[shards // 2]
    content = path.read_bytes()
    length = int(kept * len(content)) if isinstance(kept, float) else kept
    path.write_bytes(content[:length])
    refused(tmp_path, rf"{path.name} is damaged: .*{len(content[:length]):,} .*Download it again")


def with_header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode() + b"0000"


def test_bytes_behind_the_last_tensor_and_pages_of_a_server_are_damage_too(tmp_path):
    path = tiny_model(tmp_path, "qwen3") / "model.safetensors"
    for content, sentence in (
        (path.read_bytes() + b"0", "model.safetensors is damaged"),
        (b"<!doctype html><html>" * 40, "bytes are no safetensors file"),
        ((2).to_bytes(8, "little") + b"[]", "its header is no safetensors header"),
        (with_header('{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}'), "gives a bytes 0 to 4, which"),
        (with_header('{"a": {"dtype": "U8", "shape": [3], "data_offsets": [1, 4]}}'), "gives a bytes 1 to 4, which"),
        (with_header('{"a": {"dtype": "F6", "shape": [3], "data_offsets": [0, -4]}}'), "is no safetensors header"),
        (with_header('{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"), "is no safetensors header"),
        (
            with_header('{"a": {"dtype": "U8", "shape": [%s 4], "data_offsets": [0, 4]}}' % ("1, " * 70)),
            "is no safeten",
        ),
        (
            with_header(
                '{"a": {"dtype": "F6", "shape": [1], "data_offsets": [0, 8]}, "b": '
                '{"dtype": "F6", "shape": [1], "data_offsets": [8, 4]}}'
            ),
            "gives b bytes 8 to 4, which",
        ),
    ):
        path.write_bytes(content)
        refused(tmp_path, sentence)


def test_files_that_the_index_names_and_are_missing_are_counted(tmp_path):
    tiny_model(tmp_path, "llama", shards=4)
    for number in (2, 3):
        (tmp_path / f"model-0000{number}-of-00004.safetensors").unlink()
    sentence = r"model-00002-of-00004\.safetensors is listed in the index but missing \(2 files are\)"
    refused(tmp_path, sentence, ModelNotFoundError)


@for_each("load_format", ["auto", "dummy"])
@for_each("shards", [1, 3])
def test_room_is_asked_for_before_anything_is_read(tmp_path, load_format, shards):
    tiny_model(tmp_path, "qwen3", shards=shards)
    stored = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(b"")  # nobody looks

    def no_room(demand: Demand) -> bool:
        assert 0.9 * stored < demand.weight_bytes <= stored
        raise OutOfMemoryError(f"{demand.weight_bytes} in {demand.kinds}")

    with pytest.raises(OutOfMemoryError, match="in fp32"):
        load_model(tmp_path, load_format=load_format, check_room=no_room)


@for_each("quantization, share", [(None, 1), ("int8", 4), ("int4", 8)])
@for_each("family", ["llama", "mistral", "qwen2", "qwen3", "ernie4_5"])
def test_what_weights_will_take_is_reckoned_from_the_config(tmp_path, family, quantization, share):
    """Never more than they take, and little less: norms, biases, scales and padding are left out."""
    folder = tiny_model(tmp_path, family, tie_word_embeddings=True)
    found: list[int] = []
    load_model(folder, quantization=quantization, check_room=lambda demand: bool(found.append(demand.weight_bytes)))
    stored = (folder / "model.safetensors").stat().st_size
    assert 0.8 * stored / share < found[0] <= stored / share


def test_a_model_larger_than_memory_is_refused_with_what_would_fit():
    config = EngineConfig.from_options("a/model")
    gib = 1 << 30
    check_weights(10 * gib, 10 * gib, "bf16", "this CPU", config)
    for free, way_out in ((9, "'int8'"), (5, "'int4'"), (4, "'int4'")):
        sentence = rf"a/model need 10 GiB in bf16, and {free} GiB .*Use quantization={way_out}, a smaller"
        with pytest.raises(OutOfMemoryError, match=sentence):
            check_weights(10 * gib, free * gib, "bf16", "this CPU", config)
    with pytest.raises(OutOfMemoryError, match="Use a smaller model, or free memory"):
        check_weights(10 * gib, 2 * gib, "bf16", "this CPU", config)
