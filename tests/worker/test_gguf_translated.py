"""Files as llama.cpp's converter writes them, translated and loaded, compute what their checkpoints compute.

Metadata, names and factors of rotation were recorded of the converter itself; weights are the checkpoint's.
"""

import json
import struct
from pathlib import Path

import pytest
import torch
from builders.converted_gguf import converted
from builders.fused_model import fused_model
from builders.gguf_file import Octets, write_gguf
from builders.gguf_models import converted as tensors_of
from builders.gguf_models import stored_as
from builders.tiny_model import tiny_model

from penstock.frontend.models.gguf.config import config_of
from penstock.protocol.files.gguf.parts import read_model

from .test_gguf_families import logits_of

# Of these the metadata say something else than for most, so that config and tensors have to go together.
QUICK = (
    "internlm2",
    "hy_v3",
    "glm4_moe_lite",
    "llama-l3",
    "phi3-long",
    "gemma4_text",
    "lfm2_moe",
    "qwen3_next",
    "granite",
)


def written(path: Path, case: str, checkpoint: Path) -> Path:
    """The case's file, with the checkpoint's weights."""
    each, config = converted()[case], json.loads((checkpoint / "config.json").read_text())
    tensors = {name: stored_as(tensor, "F32") for name, tensor in tensors_of(checkpoint, config).items()}
    named = {
        f"blk.{number}.{name}"
        for run, names in each.layers.items()
        for number in run.split(",")
        for name in names.split()
    }
    assert set(tensors) == named | set(each.tensors)
    for name, factors in each.factors.items():
        tensors[name] = Octets((len(factors),), "F32", struct.pack(f"<{len(factors)}f", *factors))
    return write_gguf(path, each.metadata, tensors)


def checkpoint_of(case: str, tmp_path: Path) -> Path:
    each = converted()[case]
    if case == "internlm2":  # a Llama's numbers as its checkpoints lay them out
        return fused_model(tmp_path / "checkpoint", tiny_model(tmp_path / "llama", "llama", hidden_size=96), case)
    return tiny_model(tmp_path / "checkpoint", each.family, **each.overrides)


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.long) for case in sorted(converted())]
)
def test_a_converted_checkpoint_computes_what_it_did(case: str, tmp_path: Path):
    checkpoint = checkpoint_of(case, tmp_path)
    file = written(tmp_path / "model.gguf", case, checkpoint)
    folder = tmp_path / "translated"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_of(read_model((file,)))))
    (folder / "gguf.json").write_text(json.dumps({"files": [str(file)]}))
    torch.testing.assert_close(logits_of(folder), logits_of(checkpoint), atol=1e-4, rtol=1e-4)
