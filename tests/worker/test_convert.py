"""Converting a model: what is written is what quantizing while loading gives, and it appears whole or not at all."""

import json
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import msgspec
import pytest
import torch
from builders.cases import for_each
from builders.compared_models import converted as converted_to
from builders.native_variants import forced
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file

from penstock.protocol.conversion import RECORD, Conversion, ConversionProgress, ConversionResult
from penstock.protocol.errors import ConfigError
from penstock.protocol.files.own_folder import MARK, HeldFolder, make_own
from penstock.worker.backends import select
from penstock.worker.convert import convert, target_path
from penstock.worker.start.load import load_model

PROJECTION = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def source(tmp_path) -> Path:
    return tiny_model(tmp_path / "source", "qwen3", dtype="bfloat16", head_dim=32, intermediate_size=128)


def converted(source: Path, kind: str = "int8", **options: object) -> Path:
    return converted_to(source, source.parent / f"{kind}-{len(list(source.parent.iterdir()))}", kind, **options)


def test_without_native_kernels_and_torch_it_says_what_to_install(source, monkeypatch):
    monkeypatch.setattr(select, "find_spec", lambda name: None)
    with forced("none"):
        for ends_so in (lambda: converted(source), lambda: load_model(source)):
            with pytest.raises(ConfigError, match=r"switched off.*torch.*pip install 'penstock\[torch\]'"):
                ends_so()


def test_all_that_is_no_projection_comes_along_as_it_is(source, tmp_path):
    (source / "LICENSE").write_text("free")
    (source / "pytorch_model.bin").write_bytes(b"weights in another layout")
    target = converted(source)
    expected = {path.name for path in source.iterdir()} - {"pytorch_model.bin"} | {RECORD}
    assert {path.name for path in target.iterdir()} == expected
    (tmp_path / "usual").mkdir()
    assert target.stat().st_mode == (tmp_path / "usual").stat().st_mode
    config = json.loads((target / "config.json").read_text())
    assert config.pop("quantization_config")["format"] == "int-quantized"
    assert config == json.loads((source / "config.json").read_text())
    before, after = (load_file(folder / "model.safetensors") for folder in (source, target))
    same = [name for name in before if not name.endswith("_proj.weight")]
    assert "model.embed_tokens.weight" in same
    assert all(torch.equal(before[name], after[name]) for name in same)
    assert sorted(after) == sorted(same + [name for name in after if "_proj.weight" in name])

    tokenizer = tmp_path / "cached"  # as one that was converted
    tokenizer.mkdir()
    (source / "tokenizer.json").rename(tokenizer / "tokenizer.json")
    convert.convert(Conversion(str(source), str(tokenizer), str(tmp_path / "out"), "int8"), lambda said: None)
    assert (tmp_path / "out" / "tokenizer.json").is_file()


@for_each("options", [{}, {"tensor_parallel_size": 2, "is_cut": True}])
def test_it_says_how_far_it_is_and_reads_nothing_twice(source, tmp_path, options):
    said: list[ConversionProgress] = []
    asked = Conversion(str(source), str(source), str(tmp_path / "out"), "int8", **options)
    made = convert.convert(asked, said.append)
    total = sum(each.nbytes for each in load_file(source / "model.safetensors").values())
    assert [each.total for each in said] == [total] * len(said)
    assert sorted(each.done for each in said) == [each.done for each in said]
    assert said[-1] == ConversionProgress(total, total)
    files = (tmp_path / "out").rglob("*.safetensors")
    assert isinstance(made, ConversionResult) and made.before == total > made.after
    assert made.after == sum(each.nbytes for path in files for each in load_file(path).values())


@for_each("options, sentence", [
    (dict(group_size=128), r"group_size=128 .* inputs, 64, 128\. Use 32 or 64\."),
    (dict(group_size=48), "Use 32 or 64"),
    (dict(group_size=64, tensor_parallel_size=4), r"on each of 4 ranks, 32, 64\. Use 32\."),
    (dict(tensor_parallel_size=3), "tensor_parallel_size=3 can't share 4 attention heads"),
])  # fmt: skip
def test_groups_that_do_not_divide_the_inputs_are_refused_with_those_that_do(source, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        converted(source, "int4", **options)
    assert [path.name for path in source.parent.iterdir()] == ["source"]


@for_each("kind, number", [("int8", "nan"), ("int4", "inf"), ("int4", "3e38")])
def test_numbers_that_its_scales_cannot_hold_are_refused_by_the_tensors_name(source, kind, number):
    file = source / "model.safetensors"
    tensors = load_file(file)
    tensors[PROJECTION][3, 5] = float(number)
    save_file(tensors, file)
    with pytest.raises(ConfigError, match=rf"{PROJECTION} holds NaN, infinity or numbers too large for {kind}"):
        converted(source, kind)
    assert [path.name for path in source.parent.iterdir()] == ["source"]


def test_a_model_that_is_quantized_already_is_refused(source):
    with pytest.raises(ConfigError, match=r"quantized already \(compressed-tensors, 8 bits, a scale per row\)"):
        converted(converted(source))


def test_nothing_is_written_over_that_is_there_or_appears_or_is_being_made(source, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="exists, and is not written over"):
        converted_to(source, tmp_path / "out", "int8")
    with pytest.raises(ConfigError, match="made by someone else"), target_path.appearing_folder(tmp_path / "link", 0):
        (tmp_path / "link").symlink_to("nowhere")
    with (
        pytest.raises(ConfigError, match="made by someone else"),
        target_path.appearing_file(tmp_path / "f", 0) as file,
    ):
        for each in (file, tmp_path / "f"):
            each.write_text(each.parent.name)
    assert (tmp_path / "f").read_text() == tmp_path.name
    going_on = HeldFolder(tmp_path / ".other.converting", "unfinished conversion")
    with pytest.raises(ConfigError, match="Another process is converting"):
        converted_to(source, tmp_path / "other", "int8")
    assert going_on.path.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.converting", "f", "link", "out", "source"]


@for_each("end", [OSError("disk full"), SystemExit(3)])
def test_an_end_on_the_way_leaves_nothing(source, monkeypatch, end):
    def ends(*_: object) -> None:
        raise end

    monkeypatch.setattr(convert, "_write_config", ends)
    with pytest.raises(type(end)):
        converted(source)
    assert [path.name for path in source.parent.iterdir()] == ["source"]


def test_what_a_killed_conversion_left_is_removed_by_the_next(source, tmp_path):
    left = tmp_path / ".out.converting"
    make_own(left, "unfinished conversion")
    (left / "rank-2-of-4").mkdir()
    for path in (left / "model.safetensors", left / "rank-2-of-4" / "model.safetensors"):
        path.write_bytes(b"half")
    made = converted_to(source, tmp_path / "out", "int8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]
    assert load_model(made)
    assert not (made / MARK).exists() and not (made / "rank-2-of-4").exists()


@for_each("is_link", [False, True])
def test_a_foreign_folder_of_an_unfinished_ones_name_is_left_alone(is_link, source, tmp_path):
    foreign = tmp_path / ("thesis" if is_link else ".out.converting")
    foreign.mkdir()
    (foreign / "chapter.txt").write_text("years of work")
    if is_link:
        (tmp_path / ".out.converting").symlink_to(foreign)
    with pytest.raises(ConfigError, match="in the way, and not Penstock's"):
        converted_to(source, tmp_path / "out", "int8")
    assert [path.name for path in foreign.iterdir()] == ["chapter.txt"]


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(source, monkeypatch):
    monkeypatch.setattr(convert.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1_000_000}))
    with pytest.raises(ConfigError, match=r"KiB are free at"):
        converted(source)


def test_an_error_that_nobody_foresaw_ends_the_process_with_its_own_words(source, tmp_path):
    asked = msgspec.json.encode(Conversion(str(source), str(source), str(tmp_path / "out"), "int8")) + b"\n"
    code = (  # in place of the conversion, so that no torch is imported
        "import sys, types\n"
        "def broken(*_):\n    raise RuntimeError('no such case')\n"
        "sys.modules['penstock.worker.convert.convert'] = types.SimpleNamespace(convert=broken)\n"
        "from penstock.worker.convert.__main__ import main\nmain()"
    )
    with Popen([sys.executable, "-c", code], stdin=PIPE, stderr=PIPE) as child:
        child.stdin.write(asked)
        child.stdin.flush()
        assert (child.wait(60), b"RuntimeError: no such case" in child.stderr.read()) == (1, True)
