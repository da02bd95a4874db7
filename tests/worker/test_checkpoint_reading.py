"""Weights are pulled lazily and sliced, and what is wrong with a checkpoint is said with the tensor's name."""

import json
import os
from pathlib import Path

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.compared_models import converted, logits_of
from builders.tiny_configs import change_config
from builders.tiny_model import tiny_model, write_safetensors
from safetensors.torch import load_file, save_file

from penstock.kernels import TorchOperations, WeightFormat
from penstock.protocol.errors import ConfigError, ModelNotFoundError
from penstock.worker.models.config import read_config
from penstock.worker.models.load import load_model
from penstock.worker.parallel import Parallel
from penstock.worker.weights import mappings
from penstock.worker.weights.checkpoint import Checkpoint
from penstock.worker.weights.dummy_source import DummySource
from penstock.worker.weights.layer_formats import LayerFormats
from penstock.worker.weights.weights import Placement, Weights

CPU = torch.device("cpu")


def _weights(source):
    form, ops = WeightFormat("fp32"), TorchOperations(CPU, torch.float32, Parallel())
    return Weights(source, Placement(CPU, LayerFormats(form), torch.float32, ops))


@for_each("part", [None, (0, 10, 20), (1, 5, 6)])
def test_a_part_of_a_tensor_is_what_slicing_the_whole_gives(tmp_path, part):
    tiny_model(tmp_path, "llama", shards=2)
    checkpoint = Checkpoint(tmp_path)
    name, shape = "model.layers.1.self_attn.q_proj.weight", (96, 48)
    whole = checkpoint.read(name, shape)
    before = checkpoint.bytes_read
    found = checkpoint.read(name, shape, part)
    if part is not None:
        whole = whole.narrow(part[0], part[1], part[2] - part[1])
    assert torch.equal(found, whole)
    assert checkpoint.bytes_read - before == whole.numel() * 4


@for_each("dtype", ["float32", "float16", "bfloat16"])
def test_every_number_format_is_read_as_torch_rounds_it(tmp_path, dtype):
    full, rounded = tiny_model(tmp_path / "full", "qwen3"), tiny_model(tmp_path / "half", "qwen3", dtype=dtype)
    name = "model.layers.0.mlp.up_proj.weight"
    expected = Checkpoint(full).read(name, (112, 64)).to(getattr(torch, dtype))
    assert torch.equal(Checkpoint(rounded).read(name, (112, 64)), expected)


@for_each("name", ["model.safetensors", "model.safetensors.index.json"])
def test_a_pipe_among_the_weights_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match=f"{name} cannot be used: it is a pipe"):
        Checkpoint(tmp_path)


@for_each(
    "family, lost",
    [
        ("llama", "mlp.down_proj.bias"),
        ("gpt_oss", "self_attn.o_proj.bias"),
        ("gpt_oss", "mlp.experts.down_proj_bias"),
        ("deepseek_v3", "mlp.gate.e_score_correction_bias"),
    ],
)
def test_a_bias_that_one_layer_lacks_is_missed(tmp_path, family, lost):
    tiny_model(tmp_path, family, num_hidden_layers=3, num_nextn_predict_layers=0, mlp_bias=family == "llama")
    assert load_model(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors[f"model.layers.2.{lost}"]
    save_file(tensors, path)
    with pytest.raises(ConfigError, match=rf"holds model.layers.\d.{lost}, and for layer 2 no such tensor"):
        load_model(tmp_path)


def test_the_bias_of_a_router_whose_family_has_none_is_not_used(tmp_path):
    tiny_model(tmp_path, "qwen3_moe")
    path = tmp_path / "model.safetensors"
    biases = {f"model.layers.{layer}.mlp.gate.bias": torch.ones(12) for layer in range(2)}
    save_file(load_file(path) | biases, path)
    with pytest.raises(ConfigError, match="tensors that no layer of qwen3_moe reads, 2 in all"):
        load_model(tmp_path)


def test_numbers_of_64_bits_are_refused(tmp_path):
    tiny_model(tmp_path, "mixtral")
    path, name = tmp_path / "model.safetensors", "model.layers.1.block_sparse_moe.experts.3.w1.weight"
    tensors = load_file(path)
    save_file(tensors | {name: tensors[name].double()}, path)
    with pytest.raises(ConfigError, match=f"{name} is stored as torch.float64. Use a float32, float16 or bfloat16"):
        load_model(tmp_path)
    with pytest.raises(ConfigError, match=f"{name} is stored as F64, which is not converted"):
        converted(tmp_path, tmp_path / "out", "int8")


def with_more(folder, *names: str):
    tensors = {name: numpy.ones((2, 3)) for name in names}
    write_safetensors(folder / "more.safetensors", tensors, "float32")
    return folder


@for_each("family", ["llama", "mistral", "qwen2", "qwen3", "ernie4_5"])
def test_a_checkpoint_with_more_layers_than_its_config_names_is_refused(tmp_path, family):
    change_config(tiny_model(tmp_path, family, num_hidden_layers=5), num_hidden_layers=3)
    with pytest.raises(ConfigError, match=r"5 layers, up to model\.layers\.4, and .*config\.json names 3"):
        load_model(tmp_path)


UNREAD = (
    *("vision.weight", "score.weight", "model.norm.bias", "lm_head.weight_scale", "model.layers.1.self_attn.sinks"),
    *("model.layers.0.self_attn.q_norm.weight", "model.layers.1.mlp.experts.0.up_proj.weight"),
)


@for_each("name", UNREAD)
def test_tensors_that_no_layer_reads_are_refused_by_name(tmp_path, name):
    with pytest.raises(ConfigError, match=f"tensors that no layer of llama reads, 1 in all: {name}"):
        load_model(with_more(tiny_model(tmp_path, "llama"), name))


def test_many_tensors_that_no_layer_reads_are_counted(tmp_path):
    names = [f"vision.blocks.{number}.weight" for number in range(7)]
    with pytest.raises(ConfigError, match=r"reads, 7 in all: vision\.blocks\.0\.weight, .*, …"):
        load_model(with_more(tiny_model(tmp_path, "mistral"), *names))


def test_tensors_that_change_no_answer_may_stay_unread(tmp_path):
    passed_over = ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")
    told = ["model.layers.1.self_attn.k_scale", "model.mtp_block.0.self_attn.q_proj.weight"]
    told += ["mtp.layers.0.mlp.up_proj.weight"]
    model = load_model(with_more(tiny_model(tmp_path, "llama"), *passed_over, *told))
    assert sorted(model.report.leftovers) == sorted(told)


def test_layers_that_guess_further_tokens_may_stand_behind_the_others(tmp_path):
    folder = with_more(tiny_model(tmp_path, "llama", num_nextn_predict_layers=1), "model.layers.2.eh_proj.weight")
    assert load_model(folder).report.leftovers == ["model.layers.2.eh_proj.weight"]


def test_what_lies_beside_a_model_under_other_names_is_not_read(tmp_path):
    tiny_model(tmp_path, "mistral")
    for file in ("consolidated.safetensors", "adapter_model.safetensors"):
        write_safetensors(tmp_path / file, {"layers.0.attention.wq.weight": numpy.ones((2, 3))}, "float32")
    assert load_model(tmp_path).report.leftovers == []


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


def test_a_tied_head_that_was_saved_all_the_same_is_no_leftover(tmp_path):
    tied = loaded_logits(tiny_model(tmp_path, "qwen3"))
    table = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(loaded_logits(with_head(tmp_path, table)), tied)


def test_of_a_tied_head_with_numbers_of_its_own_these_count(tmp_path):
    untied = tiny_model(tmp_path / "untied", "qwen3", tie_word_embeddings=False)
    head = load_file(untied / "model.safetensors")["lm_head.weight"]
    tied = with_head(tiny_model(tmp_path / "tied", "qwen3", tie_word_embeddings=True), head)
    assert torch.equal(loaded_logits(tied), loaded_logits(untied))
    for size, is_cut in ((1, False), (2, True)):
        target = converted(tied, tmp_path / f"{size}", "int8", tensor_parallel_size=size, group_size=32, is_cut=is_cut)
        assert not read_config(target).tie_word_embeddings


def test_a_head_that_is_missing_is_refused_with_what_may_be_written(tmp_path):
    folder = change_config(tiny_model(tmp_path, "qwen3", tie_word_embeddings=True), tie_word_embeddings=False)
    with pytest.raises(ConfigError, match=r'holds no lm_head\.weight, .* write "tie_word_embeddings": true'):
        load_model(folder)


def test_a_tensor_of_another_shape_is_refused_with_both_shapes(tmp_path):
    change_config(tiny_model(tmp_path, "llama"), intermediate_size=90)
    with pytest.raises(ConfigError, match=r"gate_proj\.weight .* \(88, 48\).* \(90, 48\)"):
        load_model(tmp_path)


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


@for_each("file", ["../elsewhere.safetensors", "/etc/passwd", 5])
def test_an_index_reaches_no_file_outside_of_the_folder(tmp_path, file):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(ConfigError, match="not the name of a file in this folder"):
        Checkpoint(tmp_path)


def test_a_folder_with_foreign_weights_only_says_what_is_read(tmp_path):
    tiny_model(tmp_path, "llama")
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelNotFoundError, match=r"pytorch_model\.bin is there, but only safetensors"):
        load_model(tmp_path)


def test_made_up_weights_are_the_same_for_every_split():
    source = DummySource(CPU)
    whole = source.read("model.layers.0.mlp.up_proj.weight", (20, 8))
    halves = [source.read("model.layers.0.mlp.up_proj.weight", (20, 8), (0, first, first + 10)) for first in (0, 10)]
    assert torch.equal(whole, torch.cat(halves))
    assert not torch.equal(whole, source.read("model.layers.1.mlp.up_proj.weight", (20, 8)))


@for_each("family", ["llama", "mistral", "qwen2", "qwen3", "ernie4_5"])
def test_a_model_of_made_up_weights_needs_its_config_only(tmp_path, family):
    tiny_model(tmp_path, family)
    (tmp_path / "model.safetensors").unlink()
    model = load_model(tmp_path, load_format="dummy")
    has_bias = model.decoder.layers[0].attention.qkv.bias is not None
    assert has_bias == (family == "qwen2")


def test_a_place_in_the_checkpoint_names_its_tensors_by_their_path(tmp_path):
    tiny_model(tmp_path, "qwen2")
    at = _weights(Checkpoint(tmp_path)).at("model").at("layers").at(1).at("self_attn")
    assert at.at("q_proj").has("bias")
    assert not at.at("o_proj").has("bias")
    assert at.at("q_proj").vector("bias", (112,)).shape == (112,)


def test_a_loaded_model_keeps_no_hold_of_its_files(tmp_path):
    """Whoever overwrites them while it runs changes nothing."""
    model = load_model(tiny_model(tmp_path, "qwen3"))
    held = [line for line in open("/proc/self/maps") if str(tmp_path) in line]
    assert held == []
    assert model.report.bytes_read > 0


def test_what_was_read_of_a_file_is_mapped_no_longer_than_it_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(mappings, "_MOST_READ", 0)
    file = tiny_model(tmp_path, "llama") / "model.safetensors"
    checkpoint = Checkpoint(tmp_path)
    rows = checkpoint.read("lm_head.weight", (307, 48))
    assert str(file) in _mapped_files()
    before = rows.clone()
    assert torch.equal(checkpoint.read("model.norm.weight", (48,)), load_file(file)["model.norm.weight"])
    assert torch.equal(rows, before)
    del rows
    assert str(file) not in _mapped_files()


def test_a_file_that_takes_the_name_of_one_that_is_read_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(mappings, "_MOST_READ", 0)
    file = tiny_model(tmp_path / "model", "llama") / "model.safetensors"
    expected = load_file(file)["lm_head.weight"]
    checkpoint = Checkpoint(tmp_path / "model")
    checkpoint.read("model.norm.weight", (48,))
    os.replace(tiny_model(tmp_path / "other", "llama", seed=1) / "model.safetensors", file)
    assert torch.equal(checkpoint.read("lm_head.weight", (307, 48)), expected)


def _mapped_files() -> str:
    with open("/proc/self/maps") as maps:
        return maps.read()
