"""Converting a checkpoint of 8-bit floats: what is written answers as the source with the same quantization."""

import json
from pathlib import Path

import pytest
import torch
from builders.float8_model import FLOAT8_FORMS, Float8Form, float8_model
from builders.hand_driven import HandDriven
from builders.native_variants import available_variants
from safetensors.torch import load_file

from penstock.protocol.conversion import Conversion
from penstock.protocol.errors import ConfigError
from penstock.worker.convert.convert import convert
from penstock.worker.models.load import Model, load_model
from penstock.worker.models.products import HEAD

BY_NAME = {form.name: form for form in FLOAT8_FORMS}
KINDS = ["int8", "int4", '{"*.mlp.*": "int4"}', '{"*": null}', '{"*": "int8", "*.down_proj": null, "lm_head": null}']
SHAPE = {"hidden_size": 64, "intermediate_size": 128}

forms = pytest.mark.parametrize("form", [BY_NAME[name] for name in ("deepseek", "modelopt-own-file")], ids=str)
native = pytest.mark.skipif(not available_variants(), reason="there are no native kernels here")


def converted(source: Path, quantization: str | None, **options: object) -> Path:
    target = source.parent / "converted"
    convert(Conversion(str(source), str(source), str(target), quantization, **options), lambda said: None)
    return target


def logits_of(model: Model) -> torch.Tensor:
    driven = HandDriven(model)
    return driven.step([(driven.add(list(range(5, 29))), 24)], every_token=True)


@native
@forms
@pytest.mark.parametrize("quantization", KINDS)
def test_what_is_written_answers_as_the_source_does_with_the_same_quantization(tmp_path, form, quantization):
    source, _ = float8_model(tmp_path, form, **SHAPE)
    target = converted(source, quantization)
    written = load_model(target)
    assert written.report.leftovers == []
    assert torch.equal(logits_of(written), logits_of(load_model(source, quantization=quantization)))
    assert not any(tensor.dtype in (torch.float8_e4m3fn, torch.float8_e5m2) for tensor in tensors(target).values())
    config = json.loads((target / "config.json").read_text())
    assert config.get("quantization_config", {}).get("quant_method") in (None, "compressed-tensors")


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@forms
def test_a_copy_holds_the_same_numbers(tmp_path, form: Float8Form):
    source, _ = float8_model(tmp_path, form, **SHAPE)
    target = converted(source, None)
    before, after = tensors(source), tensors(target)
    assert before.keys() == after.keys()
    assert all(torch.equal(each.float(), after[name].float()) for name, each in before.items())
    assert all(each.dtype == after[name].dtype for name, each in before.items())
    assert torch.equal(logits_of(load_model(source)), logits_of(load_model(target)))


@native
def test_it_is_cut_for_its_ranks(tmp_path):
    source, _ = float8_model(tmp_path, BY_NAME["deepseek"], **SHAPE)
    target = converted(source, "int8", tensor_parallel_size=2, is_cut=True)
    for rank in range(2):
        names = load_file(target / f"rank-{rank}-of-2" / "model.safetensors")
        assert names["model.layers.0.mlp.down_proj.weight"].shape == (64, 64)
        assert f"{HEAD}.weight_scale_inv" not in names


def test_8_bit_floats_themselves_are_not_cut(tmp_path):
    source, _ = float8_model(tmp_path, BY_NAME["deepseek"], **SHAPE)
    with pytest.raises(ConfigError, match="8-bit floats, which are not cut for ranks. Convert it to int8 or int4"):
        converted(source, None, tensor_parallel_size=2, is_cut=True)
