"""An encoder's file beside a model's: both together become the config of the model that was converted.

`converted_encoders.json` was recorded with llama.cpp 0.5.0 from the tiny models of `seeing_models.py`:
their config and processor, and the metadata and tensors of both files as in `converted_gguf.py`.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from builders.cases import for_each
from builders.converted_gguf import write_converted
from builders.gguf_file import write_gguf, zeros

from penstock.frontend.media.families.table import family_of
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.frontend.models.gguf.find import GgufFiles, files_of
from penstock.frontend.models.gguf.translation import write_files
from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.description.vision_config import VisionConfig

RECORDED = Path(__file__).parents[2] / "builders" / "converted_encoders.json"
CONVERTED = json.loads(RECORDED.read_text(encoding="utf-8"))
FAMILIES = sorted(CONVERTED)
# One of these stands in a text where a picture's rows come.
TOKENS = ["<pad>", "<s>", "</s>", "<|image_pad|>", "<image_soft_token>", "<image>"]


def write_pair(folder: Path, family: str, tokens: list[str] = TOKENS, **encoder: Any) -> tuple[Path, Path]:
    """The model's file and its encoder's, of which `encoder` is other metadata."""
    each = CONVERTED[family]
    tensors = {name: zeros(tuple(shape)) for name, shape in each["tensors"].items()}
    for numbers, names in each["layers"].items():
        for number in numbers.split(","):
            tensors |= {f"blk.{number}.{name}": zeros((1,)) for name in names.split()}
    model = write_gguf(folder / "model.gguf", each["metadata"] | {"tokenizer.ggml.tokens": tokens}, tensors)
    beside = {name: zeros(tuple(shape)) for name, shape in each["encoder_tensors"].items()}
    return model, write_gguf(folder / "mmproj-model-f16.gguf", each["encoder"] | encoder, beside)


def translated(tmp_path: Path, model: Path, *encoders: Path) -> Path:
    folder = tmp_path / "translated"
    folder.mkdir(exist_ok=True)
    write_files(GgufFiles((model,), encoders), folder)
    return folder


def encoder_of(folder: Path) -> str | None:
    return json.loads((folder / "gguf.json").read_text()).get("encoder")


@for_each("family", FAMILIES)
def test_two_files_describe_the_model_that_was_converted(tmp_path, family):
    (original := tmp_path / "original").mkdir()
    (original / "config.json").write_text(json.dumps(CONVERTED[family]["config"]))
    (original / "preprocessor_config.json").write_text(json.dumps(CONVERTED[family]["processor"]))
    folder = translated(tmp_path, *write_pair(tmp_path, family))
    assert encoder_of(folder) == str(tmp_path / "mmproj-model-f16.gguf")
    assert family == "Gemma3" or family_of(ProcessorFiles.read(folder)) is not None  # its squares are odd here
    expected, found = read_config(original), read_config(folder)
    assert expected.vision is not None and found.vision is not None
    for field in dataclasses.fields(VisionConfig):
        assert getattr(found.vision, field.name) == getattr(expected.vision, field.name), field.name
    assert found.family == expected.family
    assert [rope.axes for rope in found.ropes.ropes] == [rope.axes for rope in expected.ropes.ropes]


def test_an_encoder_of_another_model_is_passed_over(tmp_path):
    for tokens, encoder in (
        (["<s>"], {}),  # no place for a picture
        (["<|image_pad|>"], {"clip.vision.projection_dim": 63}), (["<|image_pad|>"], {"clip.projector_type": "gemma3"}),
        (["<|image_pad|>"], {"clip.projector_type": "one to come"}),
    ):  # fmt: skip
        folder = translated(tmp_path, *write_pair(tmp_path, "Qwen3VL", tokens, **encoder))
        assert read_config(folder).vision is None and encoder_of(folder) is None, encoder


def test_an_encoder_that_can_not_be_one_is_refused_by_its_own_name(tmp_path):
    for key, value in (
        ("block_count", 10**9), ("attention.head_count", "two"), ("image_mean", [0.5]), ("patch_size", 0),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=r"^mmproj-model-f16.gguf can't be used: it has ") as refused:
            translated(tmp_path, *write_pair(tmp_path, "Qwen3VL", **{f"clip.vision.{key}": value}))
        assert str(tmp_path) not in str(refused.value)


def test_an_encoder_that_is_damaged_harms_no_model_that_has_another_or_sees_nothing(tmp_path):
    model, encoder = write_pair(tmp_path, "Qwen3VL")
    damaged = tmp_path / "mmproj-damaged.gguf"
    damaged.write_bytes(encoder.read_bytes()[:100])
    assert encoder_of(translated(tmp_path, model, damaged, encoder)) == str(encoder)
    (tmp_path / "text").mkdir()
    text = write_converted(tmp_path / "text" / "llama.gguf", "llama")
    assert encoder_of(translated(tmp_path / "text", text, damaged)) is None


@for_each("model, encoders", [
    ("m-Q4_0.gguf", ["m-mmproj-F16.gguf", "m-mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"]),
    ("b-00001-of-00002.gguf", ["b_mmproj_f32.gguf", "mmproj-a-f16.gguf", "mmproj-model.gguf"]),
])  # fmt: skip
def test_of_several_encoders_those_named_like_the_model_come_first_then_those_of_16_bits(tmp_path, model, encoders):
    for name in (*encoders, "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "m-Q4_0.gguf", "._mmproj-F16.gguf"):
        (tmp_path / name).touch()
    (tmp_path / "m-mmproj-f16-of-nobody.gguf").symlink_to("nowhere")
    assert [path.name for path in files_of(tmp_path / model).encoders] == encoders
