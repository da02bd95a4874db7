"""Writes a checkpoint's linear layers in the compressed-tensors format: W8A8 per channel and token, or W4A16 in groups.

Round to nearest. Embedding, norms and the output head stay as they are, as that format's own tools leave them.
"""

import json
from pathlib import Path
from typing import Any

GROUP_SIZE = 128


def write_quantized(checkpoint: Path, folder: Path, quantization: str) -> None:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    folder.mkdir()
    layout = {"int8": w8a8, "int4": w4a16}[quantization]
    tensors: dict[str, torch.Tensor] = {}
    with safe_open(checkpoint / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118  (a file handle, not a dict)
            tensor = file.get_tensor(name)
            stem = name.removesuffix(".weight")
            tensors |= layout(stem, tensor) if stem.endswith("_proj") else {name: tensor}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"] = description(quantization)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((checkpoint / name).read_bytes())


def w8a8(stem: str, weight: Any) -> dict[str, Any]:
    """int8 values and one scale a row."""
    import torch

    weight = weight.float()
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    values = (weight / scale).round().clamp(-127, 127).to(torch.int8)
    return {f"{stem}.weight": values, f"{stem}.weight_scale": scale.to(torch.bfloat16)}


def w4a16(stem: str, weight: Any) -> dict[str, Any]:
    """Eight 4-bit values an int32, the first in the lowest bits, offset by 8; one scale a group of columns."""
    import torch

    rows, columns = weight.shape
    groups = weight.float().view(rows, columns // GROUP_SIZE, GROUP_SIZE)
    scale = groups.abs().amax(dim=2, keepdim=True) / 7.5
    values = (groups / scale).round().clamp(-8, 7).to(torch.int64).view(rows, columns // 8, 8) + 8
    packed = (values << torch.arange(0, 32, 4)).sum(dim=2)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
    return {
        f"{stem}.weight_packed": packed,
        f"{stem}.weight_scale": scale.squeeze(2).to(torch.bfloat16),
        f"{stem}.weight_shape": torch.tensor([rows, columns]),
    }


def description(quantization: str) -> dict[str, Any]:
    shape = {"type": "int", "symmetric": True}
    if quantization == "int8":
        name, weights = "int-quantized", {"num_bits": 8, "strategy": "channel", "dynamic": False, **shape}
        activations = {"num_bits": 8, "strategy": "token", "dynamic": True, **shape}
    else:
        name, activations = "pack-quantized", None
        weights = {"num_bits": 4, "strategy": "group", "group_size": GROUP_SIZE, "dynamic": False, **shape}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": name,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }
