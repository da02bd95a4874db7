"""Writes embedding models with random weights as transformers and sentence-transformers do, for any engine to read.

The shapes are Qwen3-Embedding-0.6B's, BGE-M3's and ModernBERT-base's. Their tokenizer has a token for each byte, so
that a text of letters has as many tokens as letters, whichever engine counts them.
"""

import json
from pathlib import Path
from typing import Any

from ..models import STANDARD_DEVIATION, write_byte_tokenizer

_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# Transformers' name of the kind, its config, and which rows sentence-transformers pools.
EMBEDDERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "qwen3-0.6b": (
        "Qwen3",
        {
            "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_669, "max_position_embeddings": 32_768,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "tie_word_embeddings": True,
        },
        "lasttoken",
    ),
    "bge-m3": (
        "XLMRoberta",
        {
            "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
            "vocab_size": 250_002, "max_position_embeddings": 8194, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
            "position_embedding_type": "absolute",
        },
        "cls",
    ),
    "modernbert": ("ModernBert", {"vocab_size": 50_368, "cls_token_id": 1, "sep_token_id": 2}, "mean"),
}  # fmt: skip
_POOLING = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}


def write_embedder(folder: Path, name: str) -> None:
    """One of the models above in bfloat16."""
    import torch
    import transformers

    kind, shape, pooling = EMBEDDERS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**_SPECIAL, **shape)
    with torch.device("meta"):
        model = getattr(transformers, f"{kind}Model")(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, 0, STANDARD_DEVIATION)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.constant_(parameter, float(name.endswith("weight")))
    # Buffers of the empty model hold nothing, so the file is read into one that has them.
    model.save_pretrained(folder)
    _write_tokenizer(folder)
    _write_modules(folder, pooling, shape.get("hidden_size", 768))


def _write_tokenizer(folder: Path) -> None:
    write_byte_tokenizer(folder)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>",
        "model_max_length": 8192,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _write_modules(folder: Path, pooling: str, width: int) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    said = {"word_embedding_dimension": width} | {
        f"pooling_mode_{name}": mode == pooling for mode, name in _POOLING.items()
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(said))
    (folder / "2_Normalize").mkdir()
