"""`penstock convert`: the command from its words to the folder that it makes."""

import json
import re
import time
from collections.abc import Callable
from tempfile import TemporaryFile

import msgspec
import pytest
from builders.cases import for_each
from builders.shell import BOUND, convert_here, standard_streams
from builders.tiny_model import tiny_model

from penstock.frontend import cli
from penstock.frontend.models import conversion
from penstock.protocol.conversion import Conversion, ConversionMessage
from penstock.worker.convert.convert import convert


@pytest.fixture
def model(tmp_path):
    return tiny_model(tmp_path / "model", "qwen3", dtype="bfloat16", intermediate_size=128, head_dim=32)


@pytest.fixture
def converting_here(monkeypatch) -> None:
    """Where it is the words of the command that count."""
    convert_here(monkeypatch)


def test_it_makes_a_model_of_smaller_weights(model, tmp_path, capsys):
    out = tmp_path / "small"
    assert cli.main(["convert", str(model), str(out), "--quantization", "int4", "--group-size", "32"]) == 0
    assert re.search(rf"^{out}: [\d.]+ KiB of weights, [\d.]+ KiB before$", capsys.readouterr().out, re.MULTILINE)
    written = json.loads((out / "config.json").read_text())["quantization_config"]
    weights = written["config_groups"]["group_0"]["weights"]
    assert (weights["num_bits"], weights["group_size"]) == (4, 32)
    assert (out / "tokenizer.json").is_file()


@pytest.mark.usefixtures("converting_here")
def test_kinds_by_layer_are_json_and_none_is_a_copy(model, tmp_path):
    words = ["--quantization", '{"*": "int8", "*.down_proj": null}', "--quiet"]
    assert cli.main(["convert", str(model), str(tmp_path / "mixed"), *words]) == 0
    written = json.loads((tmp_path / "mixed" / "config.json").read_text())["quantization_config"]
    assert "model.layers.0.mlp.down_proj" in written["ignore"]
    assert cli.main(["convert", str(model), str(tmp_path / "copy"), "--quantization", "none", "--quiet"]) == 0
    assert "quantization_config" not in json.loads((tmp_path / "copy" / "config.json").read_text())


@pytest.mark.usefixtures("converting_here")
def test_it_cuts_the_weights_for_as_many_ranks_as_can_share_them(model, tmp_path, capsys):
    out = tmp_path / "cut"
    words = ["--quantization", "int8", "--tensor-parallel-size", "2", "--per-rank", "--quiet"]
    assert cli.main(["convert", str(model), str(out), *words]) == 0
    assert sorted(path.name for path in out.glob("rank-*")) == ["rank-0-of-2", "rank-1-of-2"]
    assert not list(out.glob("*.safetensors"))
    words[words.index("2")] = "3"
    assert cli.main(["convert", str(model), str(tmp_path / "out"), *words]) == 1
    assert "tensor_parallel_size=3 can't share" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.usefixtures("converting_here")
@for_each("out, kind", [("again.gguf", "q4_0"), ("folder", "int8"), ("copy", "none")])
def test_a_gguf_file_is_not_converted_again(model, tmp_path, out, kind, capsys):
    assert cli.main(["convert", str(model), str(tmp_path / "model.gguf"), "--quantization", "q8_0", "--quiet"]) == 0
    assert cli.main(["convert", str(tmp_path / "model.gguf"), str(tmp_path / out), "--quantization", kind]) == 1
    assert "is a GGUF file, whose blocks no conversion changes" in (said := capsys.readouterr().err)
    assert "model.gguf" in said and "cache" not in said
    assert not (tmp_path / out).exists()


def test_a_worker_that_dies_says_why_and_what_is_there_is_left_alone(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(conversion, "_MODULE", "penstock_that_is_not_there")
    assert cli.main(["convert", str(model), str(tmp_path / "new"), "--quantization", "int8", "--quiet"]) == 1
    assert "No module named" in capsys.readouterr().err
    (tmp_path / "out").symlink_to("nowhere")
    for out in (tmp_path / "out", model):
        assert cli.main(["convert", str(model), str(out), "--quantization", "int8"]) == 1
        assert "is not written over" in capsys.readouterr().err
    assert (tmp_path / "out").is_symlink()


KINDS = ["quantization", "int8", "int4"]


@for_each("words, sentences", [
    ([], []),
    *((["--quantization", word], [*KINDS, word[:30]]) for word in ("int9", "[1", '{"*": "int9"}', "", "x" * 200)),
    (["--quantization", "int4", "--group-size", "0"], []), (["--quantization", "int8", "--per-rank"], []),
])  # fmt: skip
def test_a_wrong_command_line_shows_the_kinds_that_there_are(model, tmp_path, words, sentences, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["convert", str(model), str(tmp_path / "out"), *words])
    error = capsys.readouterr().err.split("penstock convert: error: ")[1]
    assert end.value.code == 2 and all(sentence in error or "int9" in error for sentence in sentences), error


def test_the_worker_ends_with_its_caller_and_leaves_nothing(model, tmp_path, monkeypatch):
    """The caller's end closes the worker's standard input; until that is heard the worker is at its first message."""
    from penstock.worker.convert import __main__ as worker

    def convert_patiently(asked: Conversion, say: Callable[[ConversionMessage], None]) -> ConversionMessage:
        def say_again(said: ConversionMessage) -> None:
            for _ in range(BOUND * 100):
                say(said)
                time.sleep(0.01)
            pytest.fail("the end of the caller was not heard")

        return convert(asked, say_again)

    monkeypatch.setattr(worker, "usual_signals", lambda: None)
    monkeypatch.setattr(worker, "convert", convert_patiently)
    monkeypatch.setattr(worker.signal, "signal", lambda number, handler: None)
    asked = Conversion(str(model), str(model), str(tmp_path / "out"), "int8")
    with TemporaryFile() as words, TemporaryFile() as said:
        words.write(msgspec.json.encode(asked) + b"\n")
        words.seek(0)
        with standard_streams(words.fileno(), said.fileno(), said.fileno()), pytest.raises(SystemExit) as end:
            worker.main()
    assert end.value.code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
