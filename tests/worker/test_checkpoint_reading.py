"""Weights are pulled lazily and sliced, and what is wrong with a checkpoint is said with the tensor's name."""

import json
import os
from pathlib import Path

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.compared_models import converted, logits_of
from builders.quantized_parts import equal
from builders.tiny_configs import change_config
from builders.tiny_model import tiny_model, write_safetensors
from safetensors.torch import load_file, save_file

from penstock.protocol.errors import ConfigError, ModelNotFoundError
from penstock.worker.description.config import read_config
from penstock.worker.start.load import load_model
from penstock.worker.weights.files import mappings
from penstock.worker.weights.files.checkpoint import Checkpoint
from penstock.worker.weights.files.dummy_source import DummySource


@for_each("part", [None, (0, 10, 20), (1, 5, 6)])
@for_each("dtype", ["float32", "float16", "bfloat16"])
def test_a_part_of_a_tensor_of_any_format_is_what_slicing_the_whole_gives(tmp_path, dtype, part):
    tiny_model(tmp_path, "llama", shards=2, dtype=dtype)
    name, shape = "model.layers.1.self_attn.q_proj.weight", (96, 48)
    [expected] = [tensors[name] for path in tmp_path.glob("*.safetensors") if name in (tensors := load_file(path))]
    if part is not None:
        expected = expected.narrow(part[0], part[1], part[2] - part[1])
    checkpoint = Checkpoint(tmp_path)
    found = checkpoint.read(name, shape, part)
    assert found.dtype.name == dtype and equal(found, expected)
    assert checkpoint.bytes_read == expected.nbytes


@for_each("family, lost", [
    ("llama", "mlp.down_proj.bias"),
    ("gpt_oss", "self_attn.o_proj.bias"),
    ("gpt_oss", "mlp.experts.down_proj_bias"),
    ("deepseek_v3", "mlp.gate.e_score_correction_bias"),
])  # fmt: skip
def test_a_bias_that_one_layer_lacks_is_missed(tmp_path, family, lost):
    tiny_model(tmp_path, family, num_hidden_layers=3, num_nextn_predict_layers=0, mlp_bias=family == "llama")
    assert load_model(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors[f"model.layers.2.{lost}"]
    save_file(tensors, path)
    with pytest.raises(ConfigError, match=rf"holds model.layers.\d.{lost}, and for layer 2 no such tensor"):
        load_model(tmp_path)


def test_biases_of_one_product_may_have_several_formats(tmp_path):
    path = tiny_model(tmp_path, "qwen2", dtype="bfloat16") / "model.safetensors"
    tensors, name, found = load_file(path), "model.layers.0.self_attn.k_proj.bias", []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        save_file(tensors | {name: torch.ones(len(tensors[name]), dtype=dtype)}, path)
        found.append(load_model(tmp_path).decoder.layers[0].attention.qkv.bias)
    assert equal(found[0], found[1]) and equal(found[0], found[2])


def test_numbers_of_64_bits_are_refused(tmp_path):
    tiny_model(tmp_path, "mixtral")
    path, name = tmp_path / "model.safetensors", "model.layers.1.block_sparse_moe.experts.3.w1.weight"
    tensors = load_file(path)
    save_file(tensors | {name: tensors[name].double()}, path)
    with pytest.raises(ConfigError, match=f"{name} is stored as float64. Use a float32, float16 or bfloat16"):
        load_model(tmp_path)
    with pytest.raises(ConfigError, match=f"{name} is stored as float64, which is not converted"):
        converted(tmp_path, tmp_path / "out", "int8")


def test_formats_without_an_array_are_refused_by_the_name_in_their_file(tmp_path):
    folder = tiny_model(tmp_path, "llama")
    content = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["model.norm.weight"]["dtype"] = "F6_E3M2"
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(ConfigError, match="norm.weight is stored as F6_E3M2 in .*model.safetensors. Use a float32"):
        load_model(folder)


def with_more(folder, *names: str):
    tensors = {name: numpy.ones((2, 3)) for name in names}
    write_safetensors(folder / "more.safetensors", tensors, "float32")
    return folder


UNREAD = [
    *(
        ("llama", [name], f"1 in all: {name}")
        for name in (
            *("vision.weight", "score.weight", "model.norm.bias", "lm_head.weight_scale"),
            *("model.layers.1.self_attn.sinks", "model.layers.0.self_attn.q_norm.weight"),
            "model.layers.1.mlp.experts.0.up_proj.weight",
        )
    ),
    ("qwen3_moe", [f"model.layers.{layer}.mlp.gate.bias" for layer in range(2)], "2 in all"),
    (
        "mistral",
        [f"vision.blocks.{number}.weight" for number in range(7)],
        r"7 in all: vision\.blocks\.0\.weight, .*, …",
    ),
]


@for_each("family, names, sentence", UNREAD)
def test_tensors_that_no_layer_reads_are_refused_by_name(tmp_path, family, names, sentence):
    with pytest.raises(ConfigError, match=f"tensors that no layer of {family} reads, {sentence}"):
        load_model(with_more(tiny_model(tmp_path, family), *names))


def test_tensors_that_change_no_answer_may_stay_unread(tmp_path):
    passed_over = ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")
    told = ["model.layers.1.self_attn.k_scale", "model.mtp_block.0.self_attn.q_proj.weight"]
    # Layers that guess further tokens may stand behind the others.
    told += ["mtp.layers.0.mlp.up_proj.weight", "model.layers.2.eh_proj.weight"]
    folder = with_more(tiny_model(tmp_path, "llama", num_nextn_predict_layers=1), *passed_over, *told)
    for file in ("consolidated.safetensors", "adapter_model.safetensors"):
        write_safetensors(folder / file, {"layers.0.attention.wq.weight": numpy.ones((2, 3))}, "float32")
    assert sorted(load_model(folder).report.leftovers) == sorted(told)


@for_each("family", ["llama", "qwen3"])
def test_a_model_that_was_saved_without_its_head_has_the_same_weights(tmp_path, family):
    whole = tiny_model(tmp_path / "whole", family, tie_word_embeddings=True)
    bare = tiny_model(tmp_path / "bare", family, tie_word_embeddings=True)
    tensors = load_file(bare / "model.safetensors")
    save_file({name.removeprefix("model."): each for name, each in tensors.items()}, bare / "model.safetensors")
    assert torch.equal(loaded_logits(whole), loaded_logits(bare))


def with_head(folder: Path, head: torch.Tensor) -> Path:
    save_file({"lm_head.weight": head}, folder / "head.safetensors")
    return folder


def loaded_logits(folder: Path) -> torch.Tensor:
    model = load_model(folder)
    assert model.report.leftovers == []
    return logits_of(model)


def test_a_tied_head_that_was_saved_all_the_same_counts_if_it_has_numbers_of_its_own(tmp_path):
    plain = tiny_model(tmp_path / "plain", "qwen3", tie_word_embeddings=True)
    expected = loaded_logits(plain)
    table = load_file(plain / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(loaded_logits(with_head(plain, table)), expected)
    untied = tiny_model(tmp_path / "untied", "qwen3", tie_word_embeddings=False)
    head = load_file(untied / "model.safetensors")["lm_head.weight"]
    tied = with_head(tiny_model(tmp_path / "tied", "qwen3", tie_word_embeddings=True), head)
    assert torch.equal(loaded_logits(tied), loaded_logits(untied))
    for size, is_cut in ((1, False), (2, True)):
        target = converted(tied, tmp_path / f"{size}", "int8", tensor_parallel_size=size, group_size=32, is_cut=is_cut)
        assert not read_config(target).tie_word_embeddings


@for_each("family, changes, sentence", [
    ("qwen3", {"tie_word_embeddings": False}, r'holds no lm_head\.weight, .* write "tie_word_embeddings": true'),
    ("llama", {"intermediate_size": 90}, r"gate_proj\.weight .* \(88, 48\).* \(90, 48\)"),
    ("llama", {"num_hidden_layers": 1}, r"2 layers, up to model\.layers\.1, and .*config\.json names 1"),
    ("ernie4_5", {"num_hidden_layers": 1}, r"2 layers, up to model\.layers\.1, and .*config\.json names 1"),
])  # fmt: skip
def test_a_checkpoint_that_is_not_as_its_config_says_is_refused_with_both(tmp_path, family, changes, sentence):
    folder = change_config(tiny_model(tmp_path, family), **changes)
    with pytest.raises(ConfigError, match=sentence):
        load_model(folder)


def test_a_tensor_that_a_converter_left_transposed_is_recognized(tmp_path):
    tiny_model(tmp_path, "ernie4_5")
    write_safetensors(tmp_path / "model.safetensors", {"a.weight": numpy.ones((3, 5))}, "float32")
    with pytest.raises(ConfigError, match=r"transposed, as Paddle writes it"):
        Checkpoint(tmp_path).read("a.weight", (5, 3))


def test_a_tensor_that_the_index_lacks_or_that_its_file_lacks_is_named(tmp_path):
    tiny_model(tmp_path, "llama", shards=2)
    index = tmp_path / "model.safetensors.index.json"
    file_of = json.loads(index.read_text())["weight_map"]
    files = sorted(set(file_of.values()))
    lost = "model.layers.1.mlp.down_proj.weight"
    without = {name: file for name, file in file_of.items() if name != lost}
    exchanged = {name: files[files[0] == file] for name, file in file_of.items()}
    for weight_map, sentence in (
        (without, rf"no tensor {lost}"),
        (exchanged, r"model-\d+-of-\d+\.safetensors holds no tensor .*which its index names"),
    ):
        index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        with pytest.raises(ConfigError, match=sentence):
            load_model(tmp_path)


def test_a_pipe_and_an_index_that_leads_outside_of_the_folder_are_refused(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    for file in ("../elsewhere.safetensors", "/etc/passwd", 5):
        index.write_text(json.dumps({"weight_map": {"a": file}}))
        with pytest.raises(ConfigError, match="not the name of a file in this folder"):
            Checkpoint(tmp_path)
    index.unlink()
    for path in (index, tmp_path / "model.safetensors"):
        os.mkfifo(path)
        with pytest.raises(ConfigError, match=f"{path.name} cannot be used: it is a pipe"):
            Checkpoint(tmp_path)
        path.unlink()


def test_a_folder_with_foreign_weights_only_says_what_is_read(tmp_path):
    tiny_model(tmp_path, "llama")
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelNotFoundError, match=r"pytorch_model\.bin is there, but only safetensors"):
        load_model(tmp_path)


def test_made_up_weights_are_the_same_for_every_split():
    source = DummySource()
    whole = source.read("model.layers.0.mlp.up_proj.weight", (20, 8))
    halves = [source.read("model.layers.0.mlp.up_proj.weight", (20, 8), (0, first, first + 10)) for first in (0, 10)]
    assert numpy.array_equal(whole, numpy.concatenate(halves))
    assert not numpy.array_equal(whole, source.read("model.layers.1.mlp.up_proj.weight", (20, 8)))


def test_what_was_read_of_a_file_is_mapped_no_longer_than_it_is_used(tmp_path, monkeypatch):
    """Nor does a loaded model keep hold of its files: whoever overwrites them while it runs changes nothing."""
    model = load_model(tiny_model(tmp_path / "loaded", "qwen3"))
    assert str(tmp_path) not in _mapped_files() and model.report.bytes_read > 0
    monkeypatch.setattr(mappings, "_MOST_READ", 0)
    file = tiny_model(tmp_path / "read", "llama") / "model.safetensors"
    checkpoint = Checkpoint(tmp_path / "read")
    rows = checkpoint.read("lm_head.weight", (307, 48))
    assert str(file) in _mapped_files()
    before = rows.copy()
    assert equal(checkpoint.read("model.norm.weight", (48,)), load_file(file)["model.norm.weight"])
    assert equal(rows, before)
    del rows
    assert str(file) not in _mapped_files()


def test_a_file_that_takes_the_name_of_one_that_is_read_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(mappings, "_MOST_READ", 0)
    file = tiny_model(tmp_path / "model", "llama") / "model.safetensors"
    expected = load_file(file)["lm_head.weight"]
    checkpoint = Checkpoint(tmp_path / "model")
    checkpoint.read("model.norm.weight", (48,))
    os.replace(tiny_model(tmp_path / "other", "llama", seed=1) / "model.safetensors", file)
    assert equal(checkpoint.read("lm_head.weight", (307, 48)), expected)


def _mapped_files() -> str:
    with open("/proc/self/maps") as maps:
        return maps.read()
