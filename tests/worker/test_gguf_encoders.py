"""The encoder of a model that sees, from the GGUF file beside the model's: layers get the numbers of its checkpoint."""

import json
from pathlib import Path

import pytest
import torch
from builders import seeing_models, seeing_squares
from builders.gguf_encoders import write_encoder
from builders.gguf_file import write_gguf

from penstock.worker.models.config import read_config
from penstock.worker.weights.checkpoint import Checkpoint
from penstock.worker.weights.gguf.checkpoint import GgufCheckpoint
from penstock.worker.weights.gguf.linked_files import LinkedFiles

FAMILIES = {
    **dict.fromkeys(seeing_models.FAMILIES, seeing_models.seeing_model),
    **dict.fromkeys(seeing_squares.FAMILIES, seeing_squares.seeing_model),
}


@pytest.mark.parametrize("is_old", [False, True], ids=["", "as earlier converters wrote it"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoders_tensors_are_those_of_its_checkpoint(family: str, is_old: bool, tmp_path: Path):
    folder = tmp_path / "model"
    FAMILIES[family](folder, family)
    config = read_config(folder)
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    text = write_gguf(tmp_path / "text.gguf", {"general.architecture": "qwen3vl"})
    encoder = write_encoder(folder, tmp_path / "mmproj.gguf", vision, is_old)
    found = GgufCheckpoint(folder, LinkedFiles((text,), encoder), config)
    expected = Checkpoint(folder, None, config)
    names = [name for name in expected.names if name.startswith("visual.") and ".head." not in name]
    assert len(names) > 20
    for name in names:
        shape = tuple(expected.stored(name).get_shape())
        torch.testing.assert_close(found.read(name, shape), expected.read(name, shape), msg=lambda why, own=name: own)
    assert found.leftovers() == []


def test_without_sight_an_encoders_file_is_not_opened(tmp_path: Path):
    seeing_models.seeing_model(tmp_path / "model", "Qwen3VL")
    text = write_gguf(tmp_path / "text.gguf", {"general.architecture": "qwen3vl"})
    config = read_config(tmp_path / "model", sees=False)
    assert list(GgufCheckpoint(tmp_path / "model", LinkedFiles((text,), tmp_path / "absent"), config).names) == []
