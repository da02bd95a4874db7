"""Small random LoRA adapters in the form that PEFT saves, and the model that PEFT makes of one."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from builders.tiny_model import checkpoint_shapes, write_safetensors

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "dense", "out_proj")
MLP = (
    *("gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3", "fc1", "fc2", "c_fc", "c_proj"),
    *("input_linear", "output_linear"),
)
ALL = (*ATTENTION, *MLP)


def adapter(
    folder: Path,
    model_folder: Path,
    *,
    rank: int = 8,
    modules: Sequence[str] = ALL,
    seed: int = 1,
    strength: float = 1.0,
    dtype: str = "float32",
    extra: dict[str, numpy.ndarray] | None = None,
    **overrides: Any,
) -> Path:
    """Write an adapter for the model in `model_folder`; `overrides` are keys of its config, `extra` more tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((model_folder / "config.json").read_text())
    draw = numpy.random.default_rng(seed)
    tensors: dict[str, numpy.ndarray] = {}
    targets: set[str] = set()  # by their names in the checkpoint
    for place, (out_features, in_features) in _places(config, modules):
        targets.add(place.rpartition(".")[2])
        name = f"base_model.model.{place}"
        down = draw.standard_normal((rank, in_features), dtype=numpy.float32) / in_features**0.5
        up = draw.standard_normal((out_features, rank), dtype=numpy.float32) * strength / rank**0.5
        tensors |= {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}
    write_safetensors(folder / "adapter_model.safetensors", tensors | (extra or {}), dtype)
    written = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(model_folder), "r": rank,
        "lora_alpha": 2 * rank, "target_modules": sorted(targets), "bias": "none", "inference_mode": True, **overrides,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(written))
    return folder


def _places(config: dict[str, Any], modules: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """These projections of all layers, as checkpoints name and fuse them; with outputs and inputs.

    Of a mixture no MLPs, dense ones neither: PEFT takes their names for those of all experts.
    """
    shapes = checkpoint_shapes(config)
    is_mixture = any(".experts." in name for name in shapes)
    for name, shape in shapes.items():
        module = name.removesuffix(".weight")
        kind = module.rpartition(".")[2]
        if module != name and len(shape) == 2 and kind in modules and not (is_mixture and kind in MLP):
            yield module, shape


def merged(model_folder: Path, adapter_folder: Path, target: Path) -> Path:
    """The model with the adapter merged into its weights by PEFT, in float32, as a checkpoint of its own."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    PeftModel.from_pretrained(model, adapter_folder).merge_and_unload().save_pretrained(target)
    return target
