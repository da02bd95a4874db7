"""Converting gpt-oss, whose experts lie in one tensor: they become integers, or stay, or the reason is said."""

import json
from pathlib import Path

import pytest
import torch
from builders.backends import load_on
from builders.hand_driven import HandDriven
from builders.mxfp4_model import mxfp4_model
from builders.tiny_model import tiny_model
from safetensors import safe_open
from safetensors.torch import load_file

from penstock.protocol.conversion import Conversion
from penstock.protocol.errors import ConfigError
from penstock.worker.convert.convert import convert
from penstock.worker.models.load import Model

STACK = "model.layers.0.mlp.experts.gate_up_proj"


@pytest.fixture
def source(tmp_path) -> Path:
    return tiny_model(tmp_path / "source", "gpt_oss", dtype="bfloat16")


def converted(source: Path, quantization: str | None, **options: object) -> Path:
    target = source.with_name("converted")
    convert(Conversion(str(source), str(source), str(target), quantization, **options), lambda said: None)
    return target


def logits(model: Model) -> torch.Tensor:
    driven = HandDriven(model)
    return driven.step([(driven.add(list(range(5, 45))), 40)], every_token=True)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_it_answers_as_the_original_does_when_it_is_quantized_while_loading(source, kind):
    # Groups of 32 divide this model's inputs; while loading they are of 64, so only those of int8 are alike.
    made = load_on("native", converted(source, kind, group_size=32))
    assert made.report.leftovers == []
    expected, found = logits(load_on("native", source, quantization=kind)), logits(made)
    assert torch.equal(found, expected) if kind == "int8" else torch.cosine_similarity(found, expected).min() > 0.9


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_without_native_kernels_it_is_near_the_original(source, kind):
    made = load_on("invariant", converted(source, kind, group_size=32))
    similar = torch.cosine_similarity(logits(made), logits(load_on("invariant", source)))
    assert made.report.leftovers == [] and similar.median() > (0.99 if kind == "int8" else 0.8)


@pytest.mark.parametrize("kind, largest", [("int8", 0.65), ("int4", 0.45)])
def test_experts_take_the_room_of_their_integers(source, kind, largest):
    before, after = (
        sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        for folder in (source, converted(source, kind, group_size=32))
    )
    assert after < largest * before


def test_each_expert_has_its_own_rows_of_gate_and_up_and_its_bias_stays(source):
    before, target = load_file(source / "model.safetensors"), converted(source, "int8")
    after = load_file(target / "model.safetensors")
    for expert in range(6):
        for first, part in enumerate(("gate", "up")):
            name = f"model.layers.0.mlp.experts.{expert}.{part}_proj"
            found = after[f"{name}.weight"] * after[f"{name}.weight_scale"]
            expected = before[STACK][expert, :, first::2].T.float()
            assert (found - expected).abs().max() < 0.01 * expected.abs().max()
    assert torch.equal(after[f"{STACK}_bias"], before[f"{STACK}_bias"])
    assert json.loads((target / "config.json").read_text())["quantization_config"]["format"] == "int-quantized"


@pytest.mark.parametrize("quantization", [None, '{"*": "int8", "*.experts.*": null}'], ids=["none", "other layers"])
def test_experts_that_get_no_kind_stay_together(source, quantization):
    target = converted(source, quantization)
    with safe_open(target / "model.safetensors", framework="pt") as file:
        assert STACK in file.keys()  # noqa: SIM118
        assert not any(".experts.0." in name for name in file.keys())  # noqa: SIM118
    assert torch.equal(logits(load_on("native", target)), logits(load_on("native", source, quantization=quantization)))


@pytest.mark.parametrize("options", [{"quantization": "int8"}, {"quantization": None, "is_cut": True}])
def test_mxfp4_is_neither_changed_nor_cut_and_the_reason_is_said(tmp_path, options):
    source = mxfp4_model(tmp_path / "source")
    with pytest.raises(ConfigError, match="experts in MXFP4, which no conversion changes or cuts"):
        converted(source, tensor_parallel_size=2, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_copy_of_mxfp4_answers_as_its_source(tmp_path):
    source = mxfp4_model(tmp_path / "source")
    assert torch.equal(logits(load_on("native", converted(source, None))), logits(load_on("native", source)))
