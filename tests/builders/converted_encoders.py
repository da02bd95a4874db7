"""Models that see as llama.cpp's own converter writes them, in two files each, and what they were converted from.

`converted_encoders.json` was recorded with llama.cpp 0.5.0 from the tiny models of `seeing_models.py` and
`seeing_squares.py`: their config and processor, and the metadata and tensors of both files as in `converted_gguf.py`.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .gguf_file import write_gguf, zeros

# One of these stands in a text where a picture's rows come.
TOKENS = ["<pad>", "<s>", "</s>", "<|image_pad|>", "<image_soft_token>", "<image>"]


class ConvertedEncoder(NamedTuple):
    config: dict[str, Any]
    processor: dict[str, Any]
    metadata: dict[str, Any]
    tensors: dict[str, list[int]]
    layers: dict[str, str]
    encoder: dict[str, Any]
    encoder_tensors: dict[str, list[int]]


@cache
def converted_encoders() -> dict[str, ConvertedEncoder]:
    recorded = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {family: ConvertedEncoder(**each) for family, each in recorded.items()}


def write_pair(folder: Path, family: str, tokens: list[str] = TOKENS, **encoder: Any) -> tuple[Path, Path]:
    """The model's file and its encoder's, of which `encoder` is other metadata."""
    each = converted_encoders()[family]
    tensors = {name: zeros(tuple(shape)) for name, shape in each.tensors.items()}
    for numbers, names in each.layers.items():
        for number in numbers.split(","):
            tensors |= {f"blk.{number}.{name}": zeros((1,)) for name in names.split()}
    model = write_gguf(folder / "model.gguf", each.metadata | {"tokenizer.ggml.tokens": tokens}, tensors)
    beside = {name: zeros(tuple(shape)) for name, shape in each.encoder_tensors.items()}
    return model, write_gguf(folder / "mmproj-model-f16.gguf", each.encoder | encoder, beside)
