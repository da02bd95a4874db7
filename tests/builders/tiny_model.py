"""A small random checkpoint of any family, with the tensors that transformers would save.

`tiny_model(folder, "qwen3")` writes what a download would hold: config.json, safetensors, a byte-level tokenizer with
a chat template, and generation_config.json. The shapes are odd on purpose. The same arguments give the same bytes.
"""

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from .tiny_configs import COMMON, FAMILIES, ROPE, THETA, TWO_ROPES

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
# Common pairs of the test texts, so that a word is fewer tokens than bytes and a token may end inside a character.
MERGES = (
    ("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("Ġ", "a"), ("i", "n"), ("r", "e"), ("o", "n"), ("Ġ", "s"), ("e", "r"),
    ("n", "d"), ("Ġa", "nd"), ("l", "l"), ("in", "g"), ("ä", "½"), ("å", "¥"), ("ð", "Ł"),
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The matrices that tools quantize: not routers (`gate`), nor the gate of an expert that all tokens share.
PROJECTION = re.compile(r"(_proj|_proj_qkvz?|_proj_z|_proj_with_mqa|\.w[123])\.weight$")
LESS_ONE = (  # norms whose weights are stored minus one
    "gemma", "gemma2", "gemma3_text", "vaultgemma", "nemotron", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text",
)  # fmt: skip


def tiny_model(
    folder: Path,
    family: str,
    *,
    dtype: str = "float32",
    shards: int = 1,
    seed: int = 0,
    rope: dict[str, Any] | None = None,
    config_style: int = 5,
    adds_bos: bool | None = None,
    poison: int | None = None,
    **overrides: Any,
) -> Path:
    """Write a checkpoint of `family` into `folder`; `overrides` are keys of config.json, `rope` a variant's figures.

    `config_style` is the major version of transformers whose spelling config.json follows. `adds_bos` defaults to what
    the family's tokenizers do. The embedding of the token `poison` is NaN.
    """
    given = {
        "family": family, "dtype": dtype, "shards": shards, "seed": seed, "rope": rope, "config_style": config_style,
        "adds_bos": adds_bos, "poison": poison, "overrides": overrides,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _written(repr(given), lambda: _files(**given)).items():
        (folder / name).write_bytes(content)
    return folder


_MOST_KEPT, _MOST_BYTES = 200, 2 << 20
_KEPT: dict[str, dict[str, bytes]] = {}  # by the arguments of a checkpoint, its files


def _written(key: str, make: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
    """The files; most checkpoints are asked for again by the next test."""
    if (files := _KEPT.pop(key, None)) is None:
        files = make()
    if sum(map(len, files.values())) <= _MOST_BYTES:
        _KEPT[key] = files  # the newest is the last
        if len(_KEPT) > _MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
    return files


def _files(
    family: str, dtype: str, shards: int, seed: int, rope: dict[str, Any] | None, config_style: int,
    adds_bos: bool | None, poison: int | None, overrides: dict[str, Any],
) -> dict[str, bytes]:  # fmt: skip
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        config = {**COMMON, **FAMILIES[family], **overrides}
        written = {**config, **_spelled(family, dtype, ROPE.get(family, {}) if rope is None else rope, config_style)}
        _write_json(folder / "config.json", written)
        shapes = checkpoint_shapes({**config, "model_type": family})
        tensors = {name: tensor_values(name, shape, seed, family) for name, shape in shapes.items()}
        if poison is not None:
            tensors["model.embed_tokens.weight"][poison] = numpy.nan
        write_checkpoint(folder, tensors, dtype, shards)
        write_tokenizer(folder, family in ("llama", "mistral") if adds_bos is None else adds_bos)
        ends = [config["eos_token_id"], SPECIAL_TOKENS.index("<|im_end|>")]
        _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": ends, "pad_token_id": 0})
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def _spelled(family: str, dtype: str, rope: dict[str, Any], config_style: int) -> dict[str, Any]:
    theta = THETA.get(family, 10_000.0)
    if config_style == 4:
        return {"rope_theta": theta, "rope_scaling": rope or None, "torch_dtype": dtype}
    figures = {"rope_theta": theta, "rope_type": "default", **rope}
    if family in TWO_ROPES:  # one for layers with a window, which are never stretched
        figures = {"full_attention": figures, "sliding_attention": {"rope_theta": 10_000.0, "rope_type": "default"}}
    return {"rope_parameters": figures, "dtype": dtype}


def checkpoint_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint with this config, under the name that transformers saves it by."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    kind = CONFIG_MAPPING[config["model_type"]]
    # Some classes refuse widths that their heads don't divide, which a checkpoint with a head_dim may have.
    with patch.object(kind, "validate", lambda self: None), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(kind(**config))
    kept = remove_tied_weights_from_state_dict(model.state_dict(), model)
    return {name: tuple(tensor.shape) for name, tensor in revert_weight_conversion(model, kept).items()}


def tensor_values(name: str, shape: tuple[int, ...], seed: int, family: str) -> numpy.ndarray:
    """Large enough that the logits differ clearly, and every norm and bias matters."""
    draws = numpy.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape, dtype=numpy.float32)
    if "norm" in name and name.endswith(".weight"):
        # Nothing else scales Gemma 4's scores.
        usual = 0.3 if family == "gemma4_text" and name.endswith("q_norm.weight") else 1
        return (0 if family in LESS_ONE else usual) + draws / 5
    if name.endswith("layer_scalar"):
        return 0.7 + draws / 5
    if name.endswith(("router.scale", "per_expert_scale")):  # the first is divided by the root of the hidden size
        return (9 if name.endswith("router.scale") else 1) + draws / 3
    if name.endswith("sinks"):
        return draws * 2
    return draws / 5 if len(shape) == 1 else draws / numpy.sqrt(numpy.float32(shape[-1]))


def write_checkpoint(
    folder: Path, tensors: dict[str, numpy.ndarray], dtype: str, shards: int = 1, **header: Any
) -> None:
    """Write the tensors as one file, or as so many, with an index."""
    files = ["model.safetensors"]
    if shards > 1:
        files = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    weight_map = {}
    for number, file in enumerate(files):
        own = {name: tensors[name] for name in list(tensors)[number::shards]}
        write_safetensors(folder / file, own, dtype, **header)
        weight_map |= dict.fromkeys(own, file)
    if shards > 1:
        _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def write_safetensors(
    path: Path, tensors: dict[str, numpy.ndarray], dtype: str, form: str = "pt", label: str | None = None
) -> None:
    """Write floats as this type, which numpy may not have; `label` is the type that the header gives, if another."""
    import torch
    from safetensors.torch import save_file

    stored = {name: torch.from_numpy(array).to(getattr(torch, dtype)).contiguous() for name, array in tensors.items()}
    views = {name: each.view(getattr(torch, label or dtype)) for name, each in stored.items()}
    save_file(views, path, {"format": form})


def write_tokenizer(folder: Path, adds_bos: bool) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*SPECIAL_TOKENS, *alphabet, *("".join(pair) for pair in MERGES)]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL_TOKENS])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "add_bos_token": adds_bos, "model_max_length": 1024, "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }  # fmt: skip
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
