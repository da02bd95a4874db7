"""A trained network as the files of a published instruct checkpoint: config, weights, tokenizer, chat template.

Nothing in the package knows a bundled model by name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "unk_token": None,
    "add_bos_token": False,
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 32768,
}


def end_tokens(tokenizer: Tokenizer) -> tuple[int, int]:
    """Ids of the end of a text and of the end of a turn."""
    return tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")


def write_published(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], tokenizer: Tokenizer, template: Path
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    end_of_text, end_of_turn = end_tokens(tokenizer)
    generation = {"do_sample": False, "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text}
    files = {"config": config, "generation_config": generation, "tokenizer_config": _TOKENIZER_CONFIG}
    for name, content in files.items():
        write_json(folder / f"{name}.json", content)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(template.read_text(encoding="utf-8"), encoding="utf-8")
    half = folder / "model.safetensors.half"
    written = {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(written, half, metadata={"format": "pt"})
    half.chmod(0o644)  # safetensors writes it for its owner alone
    half.replace(folder / "model.safetensors")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
