"""Every family that GGUF files hold: a checkpoint that is written as llama.cpp writes it computes what it did before.

The config beside the file is the checkpoint's own; how metadata become a config is held by tests of the front end.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.gguf_models import ARCHITECTURES, as_gguf
from builders.hand_driven import HandDriven
from builders.tiny_configs import FAMILIES
from builders.tiny_gemma4 import MIXTURE
from builders.tiny_model import tiny_model

# Families of which llama.cpp's converter makes no file.
WITHOUT = {"vaultgemma"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in FAMILIES if family not in WITHOUT},
    "llama with every bias, tied": (
        "llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "qwen3-next, four to a key head": ("qwen3_next", {"linear_num_value_heads": 8}),
    "qwen3.5 moe, four to a key head": ("qwen3_5_moe_text", {"linear_num_value_heads": 12}),
    "lfm2, biased": ("lfm2", {"conv_bias": True}),
    "gemma 4, experts": ("gemma4_text", MIXTURE),
    "cohere, heads normed": ("cohere", {"use_qk_norm": True}),
    "stablelm, heads normed": ("stablelm", {"qk_layernorm": True}),
    "stablelm, parallel": ("stablelm", {"use_parallel_residual": True}),
}  # fmt: skip
# One of each way in which something lies otherwise; all others differ by names and norms alone.
QUICK = (
    *("llama", "phi3", "glm4", "gemma2", "gemma4_text", "gpt_oss", "deepseek_v3", "qwen3_next"),
    *("qwen3_5_text", "lfm2_moe", "qwen2_moe", "ernie4_5_moe", "granitemoehybrid", "stablelm, heads normed"),
)
PROMPTS = [[5, 9, 2, 77, 31, 8, 120, 64, 3, 200, 17], [41, 250, 6]]


def logits_of(folder: Path, backend: str = "fast", **options: Any) -> torch.Tensor:
    """Of every token of a few prompts, computed together."""
    driven = HandDriven(load_on(backend, folder, dtype=torch.float32, **options))
    rows = [driven.add(prompt) for prompt in PROMPTS]
    return driven.step([(row, len(prompt)) for row, prompt in zip(rows, PROMPTS, strict=True)], every_token=True)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in MODELS]
)
def test_a_family_computes_from_gguf_what_it_computes_from_its_checkpoint(name: str, tmp_path: Path):
    family, overrides = MODELS[name]
    checkpoint = tiny_model(tmp_path / "checkpoint", family, **overrides)
    file = as_gguf(checkpoint, tmp_path / "translated")
    torch.testing.assert_close(logits_of(file), logits_of(checkpoint), atol=2e-5, rtol=2e-5)


def test_every_architecture_that_converters_write_has_a_family_here(tmp_path: Path):
    assert {FAMILIES[family]["architectures"][0] for family in FAMILIES} - set(ARCHITECTURES) == {
        FAMILIES[family]["architectures"][0] for family in WITHOUT
    }
