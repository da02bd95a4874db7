"""Tiny checkpoints as others lay the same numbers out: projections fused or named otherwise, or in Paddle's layout.

`fused_model` writes a Llama as phi3 or internlm2. `paddle_model` writes ERNIE-4.5 as `…-Paddle` folders are published,
made after what reads them: a Paddle linear computes x @ weight, so that weights are [in, out]; FastDeploy cuts
a fused qkv at the end of all queries and of all keys, and lets the first half of `up_gate_proj` through silu;
ERNIEKit's converter transposes the head unless it is tied; numpy has no bfloat16, whose bits are saved as uint16.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .tiny_model import write_checkpoint

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


# Modules that compute x @ weight.
_LINEAR = re.compile(r"\.(o_proj|down_proj|gate)\.weight")
_LINEAR_OF_PICTURES = re.compile(
    r"\.(o_proj|down_proj)\.weight|vision_model\..*\.(qkv|proj|fc1|fc2)\.weight"
    r"|resampler_model\.(mlp|\w+_linear\.[02])\.weight"
)
_ADDED_BY_PADDLE: dict[str, Any] = dict(
    compression_ratio=1.0, fuse_linear=False, fuse_ln=False, fuse_rms_norm=True, fuse_rope=True, fuse_swiglu=True,
    max_sequence_length=None, use_flash_attention=True, use_rmsnorm=True, weight_share_add_bias=True,
    paddlenlp_version=None,
)  # fmt: skip


def paddle_model(
    folder: Path, original: Path, *, label: str | None = "uint16", shards: int = 1, **overrides: Any
) -> Path:
    """Write the Hugging Face checkpoint `original` as Paddle would, into `folder`; `label` is bfloat16's in headers."""
    folder.mkdir(parents=True)
    config = json.loads((original / "config.json").read_text())
    dtype = config.get("dtype") or config["torch_dtype"]
    (folder / "config.json").write_text(json.dumps(_config(config) | overrides))
    linear = _LINEAR_OF_PICTURES if "vision_config" in config else _LINEAR
    tensors = _tensors(original, config["tie_word_embeddings"], linear)
    label = label if dtype == "bfloat16" else None
    write_checkpoint(folder, dict(sorted(tensors.items())), dtype, shards, form="np", label=label)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (original / name).is_file():
            shutil.copyfile(original / name, folder / name)
    return folder


def _config(config: dict[str, Any]) -> dict[str, Any]:
    """What Paddle's classes save: one flat list of keys, with those of training."""
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    dtype = config.get("dtype") or config["torch_dtype"]
    config = {key: value for key, value in config.items() if not key.startswith("rope_") and key != "torch_dtype"}
    names = {"Ernie4_5ForCausalLM": "Ernie4_5_ForCausalLM"}
    written = {**config, "rope_theta": theta, "dtype": dtype, **_ADDED_BY_PADDLE}
    return written | {"architectures": [names.get(name, name) for name in config["architectures"]]}


def _tensors(original: Path, is_tied: bool, linear: re.Pattern[str]) -> dict[str, numpy.ndarray]:
    found: dict[str, numpy.ndarray] = {}
    for path in sorted(original.glob("*.safetensors")):
        found |= {name: tensor.float().numpy() for name, tensor in load_file(path).items()}
    written: dict[str, numpy.ndarray] = {}
    for name, values in found.items():
        own = "ernie." + name.removeprefix("model.") if name.startswith("model.") else name
        own = own.removeprefix("ernie.") if own.startswith("ernie.vision_model.") else own
        if "q_proj." in name:
            parts = [found[name.replace("q_proj.", f"{part}_proj.")] for part in "qkv"]
            written[own.replace("q_proj.", "qkv_proj.")] = _side_by_side(parts)
        elif re.search(r"\bgate_proj\.", name):
            parts = [values, found[name.replace("gate_proj.", "up_proj.")]]
            written[own.replace("gate_proj.", "up_gate_proj.")] = _side_by_side(parts)
        elif re.search(r"\b(k_proj|v_proj|up_proj)\.", name):
            continue
        elif linear.search(name) or (name == "lm_head.weight" and not is_tied):
            written[own] = values.T
        else:
            written[own] = values
    return written


def _side_by_side(parts: list[numpy.ndarray]) -> numpy.ndarray:
    """Of weights the outputs are columns, of biases all there is."""
    return numpy.concatenate([part.T for part in parts], axis=-1)
