"""The same requests with and without LoRA adapters on one tree.

Adapters on all projections. 16 requests decode 64 tokens each, then 16 prompts of 256 tokens are computed; without
adapters, spread over all of them, and all on one.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from penstock import LLM

from ..harness import Quantization, ShapeName, answered, compare, prompts, random_model, random_weights
from ..models import SHAPES, tensor_shapes

NUM_REQUESTS = 16
# Tokens in and out of each request.
SCENARIOS = {"decode (32 in, 64 out)": (32, 64), "prefill (256 in, 1 out)": (256, 1)}


def run(
    rank: int = 16, adapters: int = 8, quantization: Quantization = "none", shape: ShapeName = "0.6b", rounds: int = 5
) -> Any:
    names = [f"adapter {number}" for number in range(adapters)]
    room = {"enable_lora": True, "max_loras": adapters, "max_lora_rank": rank, "max_model_len": 512}
    kinds: dict[str, list[str | None]] = {"without": [None], f"{adapters} adapters": [*names], "one adapter": names[:1]}
    with random_model(shape) as base, LLM(base, **random_weights(quantization, **room)) as llm:
        for number, name in enumerate(names):
            llm.load_lora(name, write_adapter(base / name, SHAPES[shape], rank, number))
        return {
            scenario: compare(
                scenario, {kind: partial(seconds, llm, *tokens, chosen) for kind, chosen in kinds.items()}, rounds, "s"
            )
            for scenario, tokens in SCENARIOS.items()
        }


def seconds(llm: LLM, tokens_in: int, tokens_out: int, names: list[str | None]) -> float:
    """Seconds of 16 requests, which take the names in turns."""
    asked = [
        {"prompt_token_ids": ids, "lora_name": names[row % len(names)]}
        for row, ids in enumerate(prompts(NUM_REQUESTS, tokens_in))
    ]
    return answered(llm, asked, tokens_out)


def write_adapter(folder: Path, shape: dict[str, Any], rank: int, seed: int) -> Path:
    """Write an adapter as PEFT saves one that changes every projection."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    generator = torch.Generator().manual_seed(seed)
    tensors, modules = {}, set()
    for weight, size in tensor_shapes(shape):
        name = weight.removesuffix(".weight")
        if name.endswith("_proj"):
            out_features, in_features = size
            down = torch.randn(rank, in_features, generator=generator)
            up = torch.randn(out_features, rank, generator=generator) / 100
            tensors[f"base_model.model.{name}.lora_A.weight"] = down.bfloat16()
            tensors[f"base_model.model.{name}.lora_B.weight"] = up.bfloat16()
            modules.add(name.rsplit(".", 1)[1])
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": sorted(modules), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
