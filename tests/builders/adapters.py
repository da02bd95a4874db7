"""Small random LoRA adapters in the form that PEFT saves, and the model that PEFT makes of one."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from builders.tiny_hybrids import named_as_published
from builders.tiny_model import projection_shapes, write_safetensors
from builders.tiny_tensors import as_stored, expert_shapes, is_there

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
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
    for layer in range(config["num_hidden_layers"]):
        for place, (out_features, in_features) in _places(config, layer, modules):
            targets.add(place.rpartition(".")[2])
            name = f"base_model.model.model.layers.{layer}.{place}"
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


def _places(config: dict[str, Any], layer: int, modules: Sequence[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """These projections of a layer, as checkpoints name and fuse them; with outputs and inputs.

    Of a mixture no MLPs, dense ones neither: PEFT takes their names for those of all experts.
    """
    family = config["model_type"]
    is_mixture = any(expert_shapes(config, number) for number in range(config["num_hidden_layers"]))
    wanted = [name for name in modules if not (is_mixture and name in MLP)]
    chosen = {
        f"{name}.weight": shape
        for name, shape in projection_shapes(config, layer).items()
        if name.rpartition(".")[2] in wanted and is_there(family, name)
    }
    for name, shape in as_stored(family, chosen).items():
        yield named_as_published(config, name.removesuffix(".weight")), shape


def merged(model_folder: Path, adapter_folder: Path, target: Path) -> Path:
    """The model with the adapter merged into its weights by PEFT, in float32, as a checkpoint of its own."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    PeftModel.from_pretrained(model, adapter_folder).merge_and_unload().save_pretrained(target)
    return target
