"""A tiny Llama as other families lay its tensors out: projections fused, or named otherwise, and the same numbers."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

_INTERNLM2_NAMES = {
    "embed_tokens": "tok_embeddings", "lm_head": "output", "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
}  # fmt: skip


def fused_model(folder: Path, original: Path, family: str) -> Path:
    """`original` as a model of phi3 or internlm2."""
    config = json.loads((original / "config.json").read_text())
    tensors = load_file(original / "model.safetensors")
    made = {"phi3": _as_phi3, "internlm2": _as_internlm2}[family](tensors, config)
    folder.mkdir(parents=True)
    for path in original.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            (folder / path.name).write_bytes(path.read_bytes())
    save_file({name: tensor.contiguous() for name, tensor in made.items()}, folder / "model.safetensors")
    architecture = {"phi3": "Phi3ForCausalLM", "internlm2": "InternLM2ForCausalLM"}[family]
    biases = {"bias": config.pop("attention_bias")} if family == "internlm2" else {}
    config = config | biases | {"architectures": [architecture], "model_type": family}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _as_phi3(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    found = dict(tensors)
    for layer in range(config["num_hidden_layers"]):
        for block, fused, parts in (("self_attn", "qkv", "qkv"), ("mlp", "gate_up", ("gate", "up"))):
            within = f"model.layers.{layer}.{block}"
            own = [found.pop(f"{within}.{part}_proj.weight") for part in parts]
            found[f"{within}.{fused}_proj.weight"] = torch.cat(own)
    return found


def _as_internlm2(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    found, keys, head_dim = dict(tensors), config["num_key_value_heads"], config["head_dim"]
    for layer in range(config["num_hidden_layers"]):
        for tensor in ("weight", "bias"):
            names = [f"model.layers.{layer}.self_attn.{part}_proj.{tensor}" for part in "qkv"]
            if names[0] in found:
                query, key, value = (found.pop(name).unflatten(0, (keys, -1, head_dim)) for name in names)
                by_key_head = torch.cat((query, key, value), 1).flatten(0, 2)
                found[f"model.layers.{layer}.attention.wqkv.{tensor}"] = by_key_head
    return {_internlm2_name(name): tensor for name, tensor in found.items()}


def _internlm2_name(name: str) -> str:
    module, _, tensor = name.rpartition(".")
    for own, other in _INTERNLM2_NAMES.items():
        if module == own or module.endswith(f".{own}"):
            return f"{module.removesuffix(own)}{other}.{tensor}"
    return name
