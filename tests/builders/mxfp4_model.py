"""A tiny gpt-oss checkpoint as it is published: its experts in MXFP4, everything else in floats."""

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .tiny_model import tiny_model

_BLOCK = 32
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def mxfp4_model(folder: Path, **given: Any) -> Path:
    """`given` is what `tiny_model` takes; hidden and intermediate size must be multiples of 32."""
    tiny_model(folder, "gpt_oss", **{"dtype": "bfloat16", **given})
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        codes, exponents = random_blocks((experts, outputs, inputs // _BLOCK), seed=zlib.crc32(name.encode()))
        tensors |= {f"{name}_blocks": codes, f"{name}_scales": exponents}
    save_file(tensors, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def widened(codes: Tensor, exponents: Tensor) -> Tensor:
    """float32 [..., outputs, inputs]."""
    values = torch.tensor((*_VALUES, *(-value for value in _VALUES)), dtype=torch.float64)
    neighbours = torch.stack((codes % 16, codes // 16), -1).flatten(-2)  # [..., outputs, blocks, 32]
    return (values[neighbours.long()] * 2.0 ** (exponents[..., None].double() - 127)).float().flatten(-2)


def random_blocks(shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor]:
    """All codes, and exponents of a few sizes: uint8 [*shape, 16] and [*shape]."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (*shape, _BLOCK // 2), dtype=torch.uint8, generator=generator)
    return codes, torch.randint(121, 126, shape, dtype=torch.uint8, generator=generator)
