"""Models whose layers mostly keep states, and those that keep latents."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import BACKENDS, load_on
from builders.cases import for_each
from builders.compared_models import check_answers, drawn, logits_of
from builders.published_configs import HYBRIDS as PUBLISHED
from builders.published_configs import shrunk
from builders.tiny_configs import HYBRIDS
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file

from penstock.protocol.errors import ConfigError
from penstock.protocol.options.quantization import as_quantization
from penstock.worker.description.config import read_config

from .test_experts import fused

# Heads that guess further tokens, which transformers neither saves nor reads.
MTP = ("mtp.fc.weight", "mtp.layers.0.mlp.experts.0.gate_proj.weight", "mtp.norm.weight")


@for_each("name", PUBLISHED)
def test_a_published_config_is_read(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]))
    config, given = read_config(tmp_path), PUBLISHED[name].get("text_config", PUBLISHED[name])
    assert len(config.states) == config.num_layers == given["num_hidden_layers"]
    tied = PUBLISHED[name].get("tie_word_embeddings", True)
    assert (config.dtype, config.tie_word_embeddings) == ("bfloat16", tied)
    interval = given.get("full_attention_interval", 4)
    expected = given.get("full_attn_idxs") or range(interval - 1, len(config.states), interval)
    if kinds := given.get("layer_types"):
        expected = [layer for layer, kind in enumerate(kinds) if kind == "full_attention"]
    assert [layer for layer, state in enumerate(config.states) if state is None] == list(expected)


def as_published(name: str, folder: Path) -> tuple[Path, Any]:
    """A shrunk checkpoint with random weights, and transformers' model of it."""
    import transformers

    config = shrunk(PUBLISHED[name])
    (folder / "config.json").write_text(json.dumps(config))
    kind = getattr(transformers, config["architectures"][0])
    torch.manual_seed(4)
    model = kind(transformers.AutoConfig.from_pretrained(folder)).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # which are alike when a model is made
                parameter.add_(torch.randn_like(parameter) / 5)
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    weights = folder / "model.safetensors"
    # Qwen3.5 was published with the experts of a layer in two tensors, as transformers has them in memory.
    tensors = load_file((fused(folder) if "text_config" in config else folder) / "model.safetensors")
    save_file(tensors | {name: torch.ones(2, 2) for name in MTP}, weights, {"format": "pt"})
    return folder, model


@for_each("name", PUBLISHED)
def test_a_published_config_shrunk_gives_the_answers_of_transformers(name, tmp_path):
    folder, original = as_published(name, tmp_path)
    model = load_on("fast", folder, dtype="float32")
    assert all(each.startswith(("mtp.", "model.visual.")) for each in model.report.leftovers)
    check_answers(model, original, drawn(41), 8)


@for_each("family", HYBRIDS)
def test_weights_can_be_made_up_and_a_delta_nets_gate_have_numbers_of_its_own(family, tmp_path):
    folder = tiny_model(tmp_path, family)
    (folder / "model.safetensors").unlink()
    kinds = as_quantization({"*.in_proj_z": "int8"} if family == "qwen3_5_text" else {})
    model = load_on("native", folder, load_format="dummy", quantization=kinds)
    assert logits_of(model).isfinite().all()
    if family == "qwen3_5_text":
        net = model.decoder.layers[0].attention
        assert (net.qkv.weight.kind, net.gate.weight.kind) == ("fp32", "int8")


@for_each("backend", BACKENDS)
def test_a_token_takes_one_latent_and_one_key_in_each_layer(backend, tmp_path):
    model = load_on(backend, tiny_model(tmp_path, "youtu"))
    [group] = model.groups(64)
    assert model.block_bytes(group, 16, "bf16") == 16 * 2 * (48 + 16) * 2
    memory = model.memory([group], [10], 16, "bf16")
    assert sum(part.nbytes for part in memory.parts) == 10 * model.block_bytes(group, 16, "bf16")
    with pytest.raises(ConfigError, match="keeps latents instead of keys and values .* Use fp32, fp16, bf16, int8"):
        model.kv_kind("uint4")
    if backend == "native":  # in bytes, a latent and its key have a scale each
        memory = model.memory([group], [10], 16, "int8")
        assert sum(part.nbytes for part in memory.parts) == 10 * 16 * 2 * (48 + 16 + 2 * 2)
