"""Writes a checkpoint of Hugging Face's as a GGUF file, its tensors named, reordered and changed as llama.cpp's
converter does it, class by class; names are those of gguf-py's own tables.

`as_gguf(folder, target)` makes a folder that a worker loads in the place of the checkpoint. `types` says what each
tensor is stored as, by the file's name of it; vectors stay as they are.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy
import torch
from safetensors.torch import load_file
from torch import Tensor

from penstock.worker.convert.gguf.blocks import quantized_rows

from .gguf_file import Octets, write_gguf

Config = dict[str, Any]
Tensors = Iterator[tuple[str, Tensor]]
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.*)")
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")

# By what llama.cpp calls it, the architectures that configs name, each a …ForCausalLM.
_NAMED = {
    "llama": "Llama Mistral Mixtral InternLM3 Ministral", "mistral3": "Ministral3", "smollm3": "SmolLM3",
    "arcee": "Arcee", "granite": "Granite GraniteMoeHybrid", "minicpm": "MiniCPM", "internlm2": "InternLM2",
    "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen2moe": "Qwen2Moe", "qwen3moe": "Qwen3Moe", "qwen3next": "Qwen3Next",
    "qwen35": "Qwen3_5", "qwen35moe": "Qwen3_5Moe", "ernie4_5": "Ernie4_5", "ernie4_5-moe": "Ernie4_5_Moe",
    "gemma": "Gemma", "gemma2": "Gemma2", "gemma3": "Gemma3", "gemma4": "Gemma4", "phi2": "Phi", "phi3": "Phi3",
    "gpt-oss": "GptOss", "deepseek2": "DeepseekV2 DeepseekV3 Glm4MoeLite Youtu", "chatglm": "Glm", "glm4": "Glm4",
    "glm4moe": "Glm4Moe SolarOpen", "lfm2": "Lfm2", "lfm2moe": "Lfm2Moe", "minimax-m2": "MiniMaxM2",
    "command-r": "Cohere", "cohere2": "Cohere2", "stablelm": "StableLm", "nemotron": "Nemotron", "jais2": "Jais2",
    "starcoder2": "Starcoder2", "olmo2": "Olmo2 Olmo3", "olmoe": "Olmoe", "exaone4": "Exaone4",
    "hunyuan-dense": "HunYuanDenseV1", "seed_oss": "SeedOss", "dots1": "Dots1", "hy_v3": "HYV3",
}  # fmt: skip
ARCHITECTURES = {f"{name}ForCausalLM": own for own, names in _NAMED.items() for name in names.split()}
_PERMUTED = ("llama", "mistral3", "smollm3", "arcee", "granite", "minicpm")
_WITH_NORMS_ADDED = ("gemma", "gemma2", "gemma3", "nemotron", "qwen3next", "qwen35", "qwen35moe")
_MAPPED_AS = {"hy_v3": "dots1"}  # not in the tables of this version


def as_gguf(
    checkpoint: Path, target: Path, types: Callable[[str], str] = lambda name: "F32", is_widened: bool = False
) -> Path:
    """A folder beside which the checkpoint's tensors lie in one GGUF file; `is_widened`: as floats of the numbers that
    they have in their types."""
    target.mkdir()
    config = json.loads((checkpoint / "config.json").read_text())
    tensors = {name: stored_as(tensor, types(name)) for name, tensor in converted(checkpoint, config).items()}
    if is_widened:
        tensors = {name: widened(each) for name, each in tensors.items()}
    metadata = {"general.architecture": ARCHITECTURES[config["architectures"][0]]}
    file = write_gguf(target.with_suffix(".gguf"), metadata, tensors)
    for path in checkpoint.iterdir():
        if path.suffix != ".safetensors" and path.name != "model.safetensors.index.json":
            shutil.copy(path, target)
    (target / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gguf"}}))
    (target / "gguf.json").write_text(json.dumps({"files": [str(file)]}))
    return target


def stored_as(tensor: Tensor, type: str) -> Octets:
    """Vectors, and what has no whole blocks, stay float32."""
    if tensor.dim() < 2 or tensor.shape[-1] % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type]][0]:
        type = "F32"
    return Octets(tuple(tensor.shape), type, quantized(tensor.contiguous().numpy(), type))


def quantized(rows: numpy.ndarray, type: str) -> bytes:
    """[…, in] as rows of blocks: by gguf-py where it quantizes them, by Penstock's own converter for K types."""
    if type.endswith("_K"):
        return quantized_rows(rows.reshape(-1, rows.shape[-1]), type).tobytes()
    return gguf.quants.quantize(rows, gguf.GGMLQuantizationType[type]).tobytes()


def q4_k_m(name: str) -> str:
    """The type of a tensor in llama.cpp's mixture of this name."""
    is_wide = name == "output.weight" or any(part in name for part in ("attn_v.", "ffn_down", "token_embd"))
    return "Q6_K" if is_wide else "Q4_K"


def widened(stored: Octets) -> Octets:
    if stored.type in ("F32", "F16"):
        return stored
    rows = numpy.frombuffer(stored.content, numpy.uint8).reshape(*stored.shape[:-1], -1)
    floats = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[stored.type])
    return Octets(stored.shape, "F32", floats.astype(numpy.float32).tobytes())


def converted(checkpoint: Path, config: Config) -> dict[str, Tensor]:
    """By llama.cpp's names."""
    stored: dict[str, Tensor] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        stored |= load_file(path)
    architecture = ARCHITECTURES[config["architectures"][0]]
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(known[_MAPPED_AS.get(architecture, architecture)], config["num_hidden_layers"] + 1)
    found = {}
    for name, tensor in _modified(stored, config, architecture):
        own = name if name.startswith(("blk.", "token_embd")) else table.get_name(name, (".weight", ".bias"))
        assert own is not None, name
        found[own] = tensor
    return found


def _modified(stored: dict[str, Tensor], config: Config, architecture: str) -> Tensors:
    experts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in stored.items():
        tensor = tensor.float()
        if name.startswith("mtp.") or (name == "lm_head.weight" and config.get("tie_word_embeddings")):
            continue
        if (expert := _EXPERT.fullmatch(name)) is not None:
            experts.setdefault(f"{expert[1]}.{expert[3]}.weight", {})[int(expert[2])] = tensor
            continue
        if architecture == "stablelm" and ".norms." in name:
            module, _, head = name.removesuffix(".weight").rpartition(".norms.")
            experts.setdefault(f"{module}.weight", {})[int(head)] = tensor
            continue
        yield from _of_class(name, tensor, config, architecture)
    merged = r"model.\1.block_sparse_moe.experts" if architecture == "minimax-m2" else r"\1.feed_forward.experts"
    for name, parts in experts.items():
        name = re.sub(r"model\.(layers\.\d+)\.(block_sparse_moe|feed_forward)\.experts", merged, name)
        yield name, torch.stack([parts[number] for number in range(len(parts))])


def _of_class(name: str, tensor: Tensor, config: Config, architecture: str) -> Tensors:
    if name.endswith("e_score_correction_bias"):
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
    if name.endswith(".expert_bias"):
        name = name.replace(".expert_bias", ".expert_bias.bias")
    if architecture in _PERMUTED and re.search(r"[qk]_proj\.(weight|bias)$", name):
        heads = config["num_attention_heads" if ".q_proj" in name else "num_key_value_heads"]
        tensor = permuted(tensor, heads)
    if architecture in _WITH_NORMS_ADDED and name.endswith("norm.weight"):
        tensor = tensor if name.endswith("linear_attn.norm.weight") else tensor + 1
    change = _CLASSES.get(architecture)
    yield from ((name, tensor),) if change is None else change(name, tensor, config)


def permuted(weights: Tensor, heads: int) -> Tensor:
    """Each head's first half on the even rows, its second half on the odd ones."""
    return weights.unflatten(0, (heads, 2, -1)).swapaxes(1, 2).flatten(0, 2)


def _internlm2(name: str, tensor: Tensor, config: Config) -> Tensors:
    if "attention.wqkv" not in name:
        yield name, tensor
        return
    layer, heads, keys = _LAYER.fullmatch(name)[1], config["num_attention_heads"], config["num_key_value_heads"]
    grouped = tensor.view(keys, heads // keys + 2, -1, *tensor.shape[1:])
    kind = name.rpartition(".")[2]
    query, key, value = grouped[:, :-2], grouped[:, -2], grouped[:, -1]
    rest = tensor.shape[1:]
    yield f"blk.{layer}.attn_q.{kind}", permuted(query.reshape(-1, *rest), heads)
    yield f"blk.{layer}.attn_k.{kind}", permuted(key.reshape(-1, *rest), keys)
    yield f"blk.{layer}.attn_v.{kind}", value.reshape(-1, *rest)


def _granite(name: str, tensor: Tensor, config: Config) -> Tensors:
    layer = found[1] if (found := _LAYER.fullmatch(name)) else ""
    if name.endswith("shared_mlp.input_linear.weight"):
        gate, up = tensor.split(config["shared_intermediate_size"])
        yield f"blk.{layer}.ffn_gate.weight", gate
        yield f"blk.{layer}.ffn_up.weight", up
    elif name.endswith("shared_mlp.output_linear.weight"):
        yield f"blk.{layer}.ffn_down.weight", tensor
    else:
        yield name, tensor


def _deepseek(name: str, tensor: Tensor, config: Config) -> Tensors:
    if not name.endswith("kv_b_proj.weight"):
        yield name, tensor
        return
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    keys, values = tensor.view(-1, nope + value, tensor.shape[-1]).split((nope, value), 1)
    yield name.replace("kv_b_proj", "k_b_proj"), keys.transpose(1, 2)
    yield name.replace("kv_b_proj", "v_b_proj"), values


def _qwen3_next(name: str, tensor: Tensor, config: Config) -> Tensors:
    if name.endswith(".A_log"):
        tensor = -torch.exp(tensor)
    elif name.endswith(".dt_bias"):
        name = name.replace(".dt_bias", ".dt_proj.bias")
    elif "conv1d" in name:
        tensor = tensor.squeeze()
    if "in_proj_qkvz" not in name:
        yield name, tensor
        return
    keys, key, value = (config[f"linear_{each}"] for each in ("num_key_heads", "key_head_dim", "value_head_dim"))
    values = config["linear_num_value_heads"] // keys * value
    q, k, v, z = (
        part.flatten(0, 1) for part in tensor.view(keys, -1, tensor.shape[1]).split((key, key, values, values), 1)
    )
    layer = _LAYER.fullmatch(name)[1]
    yield f"blk.{layer}.attn_qkv.weight", torch.cat((q, k, v))
    yield f"blk.{layer}.attn_gate.weight", z


def _qwen3_5(name: str, tensor: Tensor, config: Config) -> Tensors:
    """Value heads round by round."""
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    before, size = 2 * keys * config["linear_key_head_dim"], config["linear_value_head_dim"]
    if keys != heads and ".linear_attn." in name:
        if ".in_proj_qkv." in name or ".conv1d" in name:
            tensor = torch.cat((tensor[:before], _tiled(tensor[before:], 0, keys, size)))
        elif ".in_proj_z." in name:
            tensor = _tiled(tensor, 0, keys, size)
        elif re.search(r"in_proj_[ab]\.|\.A_log|\.dt_bias", name):
            tensor = _tiled(tensor, 0, keys, 1)
        elif ".out_proj." in name:
            tensor = _tiled(tensor, 1, keys, size)
    yield from _qwen3_next(name, tensor, config)


def _tiled(tensor: Tensor, dim: int, keys: int, size: int) -> Tensor:
    return tensor.unflatten(dim, (keys, -1, size)).swapaxes(dim, dim + 1).flatten(dim, dim + 2)


def _gemma4(name: str, tensor: Tensor, config: Config) -> Tensors:
    layer = found[1] if (found := _LAYER.fullmatch(name)) else ""
    if name.endswith("router.scale"):
        yield f"blk.{layer}.ffn_gate_inp.scale", tensor
    elif name.endswith("per_expert_scale"):
        yield f"blk.{layer}.ffn_down_exps.scale", tensor
    else:
        yield (f"{name}.weight" if name.endswith("layer_scalar") or ".experts." in name else name), tensor


def _gpt_oss(name: str, tensor: Tensor, config: Config) -> Tensors:
    name = name.replace("sinks", "sinks.weight").replace("_proj_bias", "_proj.bias")
    if "experts" in name and not name.endswith(".bias"):
        name, tensor = f"{name}.weight", tensor.transpose(-1, -2)
    if "gate_up_proj" not in name:
        yield name, tensor
        return
    yield name.replace("gate_up_proj", "gate_proj"), tensor[:, ::2]
    yield name.replace("gate_up_proj", "up_proj"), tensor[:, 1::2]


def _lfm2(name: str, tensor: Tensor, config: Config) -> Tensors:
    yield name, tensor.squeeze(1) if "conv.conv.weight" in name else tensor


def _hunyuan3(name: str, tensor: Tensor, config: Config) -> Tensors:
    name = name.replace("mlp.router.gate", "mlp.gate").replace("mlp.expert_bias.bias", "mlp.gate.e_score_correction")
    yield name.replace("shared_mlp", "shared_experts"), tensor


_CLASSES: dict[str, Callable[[str, Tensor, Config], Tensors]] = {
    "internlm2": _internlm2, "granite": _granite, "deepseek2": _deepseek, "qwen3next": _qwen3_next, "qwen35": _qwen3_5,
    "qwen35moe": _qwen3_5, "gemma4": _gemma4, "gpt-oss": _gpt_oss, "lfm2": _lfm2, "lfm2moe": _lfm2, "hy_v3": _hunyuan3,
}  # fmt: skip
