"""An encoder's file beside a model's: both together become the config of the model that was converted."""

import dataclasses
import json
from pathlib import Path

import pytest
from builders.converted_encoders import converted_encoders, write_pair

from penstock.frontend.media.families.table import family_of
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.frontend.models.gguf.find import encoder_beside
from penstock.frontend.models.gguf.translation import write_files
from penstock.protocol.errors import ConfigError
from penstock.worker.models.config import read_config
from penstock.worker.models.vision_config import VisionConfig

FAMILIES = sorted(converted_encoders())


def translated(tmp_path: Path, model: Path, encoder: Path | None) -> Path:
    folder = tmp_path / "translated"
    folder.mkdir()
    write_files((model,), folder, encoder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_two_files_describe_the_model_that_was_converted(tmp_path, family):
    original = tmp_path / "original"
    original.mkdir()
    each = converted_encoders()[family]
    (original / "config.json").write_text(json.dumps(each.config))
    (original / "preprocessor_config.json").write_text(json.dumps(each.processor))
    expected, found = read_config(original), read_config(translated(tmp_path, *write_pair(tmp_path, family)))
    assert expected.vision is not None and found.vision is not None
    for field in dataclasses.fields(VisionConfig):
        assert getattr(found.vision, field.name) == getattr(expected.vision, field.name), field.name
    assert found.family == expected.family
    assert [rope.axes for rope in found.ropes.ropes] == [rope.axes for rope in expected.ropes.ropes]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "Gemma3"])  # its squares are odd here
def test_the_front_end_knows_how_its_pictures_are_cut(tmp_path, family):
    folder = translated(tmp_path, *write_pair(tmp_path, family))
    assert family_of(ProcessorFiles.read(folder)) is not None
    assert json.loads((folder / "gguf.json").read_text())["mmproj"] == str(tmp_path / "mmproj-model-f16.gguf")


@pytest.mark.parametrize(
    ("tokens", "encoder"),
    [
        (["<s>"], {}),  # no place for a picture
        (["<|image_pad|>"], {"clip.vision.projection_dim": 63}),
        (["<|image_pad|>"], {"clip.projector_type": "gemma3"}),
        (["<|image_pad|>"], {"clip.projector_type": "one to come"}),
    ],
)
def test_an_encoder_of_another_model_is_passed_over(tmp_path, tokens, encoder):
    folder = translated(tmp_path, *write_pair(tmp_path, "Qwen3VL", tokens, **encoder))
    assert read_config(folder).vision is None
    assert "mmproj" not in json.loads((folder / "gguf.json").read_text())


@pytest.mark.parametrize(
    ("key", "value"),
    [("block_count", 10**9), ("attention.head_count", "two"), ("image_mean", [0.5]), ("patch_size", 0)],
)
def test_an_encoder_that_can_not_be_one_is_refused_by_its_own_name(tmp_path, key, value):
    with pytest.raises(ConfigError, match=r"^mmproj-model-f16.gguf can't be used: it has ") as refused:
        translated(tmp_path, *write_pair(tmp_path, "Qwen3VL", **{f"clip.vision.{key}": value}))
    assert str(tmp_path) not in str(refused.value)


def test_of_several_encoders_beside_a_model_the_smallest_floats_are_taken(tmp_path):
    for name in ("mmproj-m-F32.gguf", "mmproj-m-BF16.gguf", "m-mmproj-F16.gguf", "m.gguf"):
        (tmp_path / name).touch()
    assert encoder_beside([tmp_path / "m.gguf"]) == tmp_path / "m-mmproj-F16.gguf"
    (tmp_path / "m-mmproj-F16.gguf").unlink()
    assert encoder_beside([tmp_path / "m.gguf"]) == tmp_path / "mmproj-m-BF16.gguf"
