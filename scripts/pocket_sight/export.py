"""The trained network as the files of a published Qwen3-VL checkpoint: nothing in the package knows it by name."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from .model import published_config
from .sizes import FRAMES, LEAST_PIXELS, MERGE, MOST_PIXELS, PATCH

TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def export(weights: dict[str, Tensor], tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    end_of_text, end_of_turn = (tokenizer.token_to_id(f"<|{name}|>") for name in ("endoftext", "im_end"))
    _write(folder / "config.json", published_config(tokenizer))
    generation = {"do_sample": False, "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text}
    _write(folder / "generation_config.json", generation)
    _write(folder / "preprocessor_config.json", preprocessor_config())
    _write(folder / "tokenizer_config.json", _tokenizer_config())
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    # The output layer is the embedding table, which published checkpoints hold once.
    kept = {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}
    tensors = {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in kept.items()}
    half = folder / "model.safetensors.half"
    save_file(tensors, half, metadata={"format": "pt"})
    half.chmod(0o644)  # safetensors writes it for its owner alone
    half.replace(folder / "model.safetensors")


def take(model: nn.Module, folder: Path) -> None:
    """Exported weights into a network; the output layer is the embedding table."""
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)


def preprocessor_config() -> dict[str, Any]:
    return {
        "size": {"longest_edge": MOST_PIXELS, "shortest_edge": LEAST_PIXELS},
        "patch_size": PATCH,
        "temporal_patch_size": FRAMES,
        "merge_size": MERGE,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessorFast",
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
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


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
