"""Every family that GGUF files hold: a checkpoint written as llama.cpp writes it computes what it did before.

First with the checkpoint's own config next to the file, then with the config that the front end makes of the file's
metadata, which were recorded of llama.cpp's converter, as were names and factors of rotation.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.converted_gguf import converted
from builders.gguf_file import write_gguf
from builders.gguf_models import ARCHITECTURES, as_gguf, stored_as
from builders.gguf_models import converted as tensors_of
from builders.hand_driven import HandDriven
from builders.other_layouts import fused_model
from builders.tiny_configs import FAMILIES, MIXTURE
from builders.tiny_model import tiny_model

from penstock.frontend.models.gguf.config import config_of
from penstock.protocol.files.gguf.parts import read_model

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
# Of these the metadata say something else than for most, so that config and tensors have to go together.
QUICK_CONVERTED = (
    *("internlm2", "hy_v3", "glm4_moe_lite", "llama-l3", "phi3-long", "gemma4_text", "lfm2_moe", "qwen3_next"),
    "granite",
)
PROMPTS = [[5, 9, 2, 77, 31, 8, 120, 64, 3, 200, 17], [41, 250, 6]]


def logits_of(folder: Path, backend: str = "fast", **options: Any) -> torch.Tensor:
    """Of every token of a few prompts, computed together."""
    driven = HandDriven(load_on(backend, folder, dtype="float32", **options))
    rows = [driven.add(prompt) for prompt in PROMPTS]
    return driven.step([(row, len(prompt)) for row, prompt in zip(rows, PROMPTS, strict=True)], every_token=True)


def some_and_others(some: Sequence[str], every: Iterable[str]) -> pytest.MarkDecorator:
    others = pytest.param(sorted(set(every) - set(some)), marks=pytest.mark.long)
    return pytest.mark.parametrize("names", [some, others], ids=["some", "others"])


@some_and_others(QUICK, MODELS)
def test_a_family_computes_from_gguf_what_it_computes_from_its_checkpoint(names: Sequence[str], tmp_path: Path):
    for name in names:
        family, overrides = MODELS[name]
        checkpoint = tiny_model(tmp_path / name / "checkpoint", family, **overrides)
        file = as_gguf(checkpoint, tmp_path / name / "translated")
        torch.testing.assert_close(logits_of(file), logits_of(checkpoint), atol=2e-5, rtol=2e-5, msg=name)


def test_every_architecture_that_converters_write_has_a_family_here():
    assert {FAMILIES[family]["architectures"][0] for family in FAMILIES} - set(ARCHITECTURES) == {
        FAMILIES[family]["architectures"][0] for family in WITHOUT
    }


def written(path: Path, case: str, checkpoint: Path) -> Path:
    """The case's file, with the checkpoint's weights."""
    each, config = converted()[case], json.loads((checkpoint / "config.json").read_text())
    tensors = {name: stored_as(tensor, "F32") for name, tensor in tensors_of(checkpoint, config).items()}
    assert set(tensors) == {*each.of_layers(), *each.tensors}
    return write_gguf(path, each.metadata, tensors | each.stored_factors())


@some_and_others(QUICK_CONVERTED, converted())
def test_a_converted_checkpoint_computes_what_it_did(names: Sequence[str], tmp_path: Path):
    for case in names:
        checkpoint, translated = from_metadata(case, tmp_path / case)
        assert_close = torch.testing.assert_close
        assert_close(logits_of(translated), logits_of(checkpoint), atol=1e-4, rtol=1e-4, msg=case)


def from_metadata(case: str, folder: Path) -> tuple[Path, Path]:
    """A checkpoint, and its file with the config that the front end makes of it."""
    each = converted()[case]
    if case == "internlm2":  # a Llama's numbers as its checkpoints lay them out
        checkpoint = fused_model(folder / "checkpoint", tiny_model(folder / "llama", "llama", hidden_size=96), case)
    else:
        checkpoint = tiny_model(folder / "checkpoint", each.family, **each.overrides)
    file = written(folder / "model.gguf", case, checkpoint)
    translated = folder / "translated"
    translated.mkdir()
    (translated / "config.json").write_text(json.dumps(config_of(read_model((file,)))))
    (translated / "gguf.json").write_text(json.dumps({"files": [str(file)]}))
    return checkpoint, translated
