"""Models that see, converted, cut for ranks, and packed for the next start: the encoder comes along, bit for bit."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from builders import seeing_ernie, seeing_models, seeing_squares
from builders.backends import load_on
from builders.compared_models import check_equal
from safetensors.torch import load_file

from penstock.protocol.conversion import Conversion
from penstock.worker.backends.native import backend as native_backend
from penstock.worker.convert import convert
from penstock.worker.models.load import Model
from penstock.worker.parallel import Parallel

FAMILIES: dict[str, ModuleType] = {
    "Qwen3VL": seeing_models,
    "Qwen2_5_VL": seeing_models,
    "Gemma3": seeing_squares,
    "Ernie4_5_VLMoe": seeing_ernie,
}


def source_of(folder: Path, family: str = "Qwen3VL") -> Path:
    FAMILIES[family].seeing_model(folder / "source", family)
    (folder / "source" / "preprocessor_config.json").write_text('{"image_mean": [0.1, 0.2, 0.3]}')
    (folder / "source" / "chat_template.jinja").write_text("{{ messages }}")
    return folder / "source"


def converted(source: Path, name: str, kind: str | None, size: int = 1) -> Path:
    target = source.with_name(name)
    options = dict(group_size=32, tensor_parallel_size=size, is_cut=size > 1)
    convert.convert(Conversion(str(source), str(source), str(target), kind, **options), lambda said: None)
    return target


def check_alike(found: Model, right: Model) -> None:
    assert found.report.leftovers == []
    check_equal(found.decoder, right.decoder)
    check_equal(found.encoding.encoder, right.encoding.encoder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_converted_encoder_has_the_bits_of_quantizing_it_while_loading_on_every_rank(family, tmp_path):
    source = source_of(tmp_path, family)
    whole, cut = converted(source, "whole", "int8"), converted(source, "cut", "int8", size=2)
    check_alike(load_on("native", whole), load_on("native", source, quantization="int8"))
    for rank in range(2):
        check_alike(*(load_on("native", folder, ranks=Parallel(rank, 2)) for folder in (cut, whole)))


def test_its_files_are_those_of_the_source_with_int8_at_most_narrow(tmp_path):
    source = source_of(tmp_path)
    target = converted(source, "narrow", "int4")
    for name in ("preprocessor_config.json", "chat_template.jinja"):
        assert (target / name).read_bytes() == (source / name).read_bytes()
    config = json.loads((target / "config.json").read_text())
    [narrow, usual] = sorted(
        config.pop("quantization_config")["config_groups"].values(), key=lambda group: group["format"]
    )
    assert config == json.loads((source / "config.json").read_text())
    before, after = (load_file(folder / "model.safetensors") for folder in (source, target))
    for targets, tensor in ((narrow["targets"], "weight_scale"), (usual["targets"], "weight_packed")):
        assert all(f"{each}.weight" in before and f"{each}.{tensor}" in after for each in targets)
    assert all(each.startswith("model.visual.") for each in narrow["targets"])
    assert all(each.startswith("model.language_model.") for each in usual["targets"])
    assert "model.visual.patch_embed.proj.weight" in after
    assert load_on("native", target).report.leftovers == []


def test_packed_weights_that_are_kept_are_the_encoders_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native_backend, "_WORTH_KEEPING", 1)
    source = source_of(tmp_path)
    first = load_on("native", source, quantization="int8")
    first.cache.write_in_background()
    first.cache.wait()
    second = load_on("native", source, quantization="int8")
    assert second.cache.is_kept and second.report.bytes_read < first.report.bytes_read / 4
    check_alike(second, first)
