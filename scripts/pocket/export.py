"""The trained network as the files that an instruct checkpoint has: config, weights, tokenizer, chat template.

The same files as a Qwen3 checkpoint's, so that nothing in the package knows pocket by name.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from .model import Decoder
from .tokens import SPECIAL

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
END_OF_TEXT, _, END_OF_TURN = SPECIAL


def export(model: Decoder, tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    end_of_text, end_of_turn = (tokenizer.token_to_id(token) for token in (END_OF_TEXT, END_OF_TURN))
    ids = {"bos_token_id": None, "eos_token_id": end_of_turn, "pad_token_id": end_of_text}
    _write(folder / "config.json", model.shape.config() | ids)
    generation = {"do_sample": False, "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text}
    _write(folder / "generation_config.json", generation)
    _write(folder / "tokenizer_config.json", _tokenizer_config())
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    weights = model.state_dict().items()
    tensors = {f"model.{name}": tensor.detach().to("cpu", torch.bfloat16) for name, tensor in weights}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes it for its owner alone


def imported(model: Decoder, folder: Path) -> None:
    """Give the model the weights that were exported to this folder."""
    tensors = load_file(folder / "model.safetensors").items()
    model.load_state_dict({name.removeprefix("model."): tensor.float() for name, tensor in tensors})


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 32768,
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
