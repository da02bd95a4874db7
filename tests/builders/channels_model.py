"""A tiny model with gpt-oss's special tokens and a template in its manner, and a processor that makes it say a text."""

import json
from pathlib import Path
from typing import Any

import tokenizers

from .plugin_package import plugin_package
from .tiny_model import tiny_model

MARKS = ("<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>")
_TEMPLATE = Path(__file__).parent / "chat_templates" / "gpt-oss.jinja"
_SCRIPT = """
def script(vocab_size, arguments):
    if arguments is None:
        return None

    def step(tokens, num_prompt, logits):
        place = len(tokens) - num_prompt
        if place < len(arguments):
            logits[:] = -float("inf")
            logits[arguments[place]] = 0.0

    return step
"""


def channels_model(folder: Path) -> Path:
    tiny_model(folder, "qwen3")
    path = str(folder / "tokenizer.json")
    backend = tokenizers.Tokenizer.from_file(path)
    backend.add_special_tokens(list(MARKS))
    backend.save(path)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = _TEMPLATE.read_text(encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    ends = [backend.token_to_id("<|return|>"), 2, backend.token_to_id("<|call|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return folder


def script_package(folder: Path) -> Path:
    """What must stand on `sys.path` where a model is started with `logits_processors=["script"]`."""
    return plugin_package(folder, "penstock_test_script", _SCRIPT, {"penstock.logits_processors": {"script": "script"}})


def said(tokenizer: Any, text: str) -> dict[str, list[int]]:
    """The argument of the processor for an answer that is this text."""
    return {"script": tokenizer.encode(text, add_special_tokens=False)}
