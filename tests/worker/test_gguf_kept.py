"""Packed weights of a GGUF file are kept for the next start, which reads no matrix; a changed file is packed anew."""

import os
from pathlib import Path

import pytest
import torch
from builders.backends import load_on
from builders.gguf_models import as_gguf
from builders.hand_driven import HandDriven
from builders.native_variants import available_variants
from builders.tiny_model import tiny_model

from penstock.worker.backends.native import backend as native_backend
from penstock.worker.models.load import Model

from .test_gguf_types import q4_k_m

pytestmark = pytest.mark.skipif(not available_variants(), reason="only native kernels keep packed weights")
FAMILIES = {
    "qwen3": {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64},
    "qwen3_moe": {"hidden_size": 256, "moe_intermediate_size": 256, "head_dim": 64},
    "deepseek_v3": {"hidden_size": 256},
}


@pytest.fixture(autouse=True)
def _kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native_backend, "_WORTH_KEEPING", 0)


def started(folder: Path) -> tuple[Model, torch.Tensor]:
    """A model whose packed weights are written, and the logits of a prompt."""
    model = load_on("native", folder)
    driven = HandDriven(model)
    row = driven.add([5, 9, 2, 77, 31])
    logits = driven.step([(row, 5)], every_token=True)
    assert model.cache is not None
    model.cache.write_in_background()
    model.cache.wait()
    return model, logits


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_start_maps_what_the_first_one_packed(family: str, tmp_path: Path):
    checkpoint = tiny_model(tmp_path / "checkpoint", family, **FAMILIES[family])
    folder = as_gguf(checkpoint, tmp_path / "model", q4_k_m)
    first, expected = started(folder)
    second, logits = started(folder)
    assert second.cache is not None
    assert second.cache.is_kept
    assert second.report.bytes_read < first.report.bytes_read / 8  # norms
    assert torch.equal(logits, expected)
    assert second.report.kinds == first.report.kinds


def test_a_file_that_changed_is_packed_anew(tmp_path: Path):
    checkpoint = tiny_model(tmp_path / "checkpoint", "qwen3", **FAMILIES["qwen3"])
    folder = as_gguf(checkpoint, tmp_path / "model", q4_k_m)
    first, _ = started(folder)
    path = tmp_path / "model.gguf"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened
    second, _ = started(folder)
    assert first.cache is not None
    assert second.cache is not None
    assert second.cache.path != first.cache.path
    assert second.report.bytes_read == first.report.bytes_read
