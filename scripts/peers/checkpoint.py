"""The model that every engine gets: a shape of `bench_models.py` in bfloat16 safetensors with random weights.

Written with torch and safetensors alone, tensor by tensor names as Hugging Face's Qwen3 has them, so that any engine's
converter reads it. Knows no engine.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from bench_models import SHAPES, write_config

STANDARD_DEVIATION = 0.02


def write_checkpoint(folder: Path, shape_name: str) -> None:
    """Does nothing where the folder has it already."""
    if (folder / "model.safetensors").exists():
        return
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, SHAPES[shape_name])
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "bfloat16"
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.ones(shape, dtype=torch.bfloat16)
        if name.endswith("norm.weight")
        else (torch.randn(shape, generator=generator) * STANDARD_DEVIATION).to(torch.bfloat16)
        for name, shape in tensor_shapes(config)
    }
    unfinished = folder / "unfinished"
    save_file(tensors, unfinished, metadata={"format": "pt"})
    unfinished.rename(folder / "model.safetensors")


def tensor_shapes(config: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    layer = {
        "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
        "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
        "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    for number in range(config["num_hidden_layers"]):
        for name, shape in layer.items():
            yield f"model.layers.{number}.{name}.weight", shape
