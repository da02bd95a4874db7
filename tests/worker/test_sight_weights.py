"""Weights of models that see: converted, cut for ranks, packed for the next start, quantized by others, or with an
adapter; the encoder comes along bit for bit.
"""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import check_equal, converted
from builders.float8_forms import FLOAT8_FORMS, Float8Form
from builders.quantized_model import Form, quantization_config, quantized_copy
from builders.runner_harness import TinyEngine, slotted_runner
from builders.seeing_models import ERNIE, seeing_model
from builders.seeing_runner import SeeingRunner, logits_behind
from builders.seeing_scenes import Scene
from safetensors.torch import load_file, save_file

from penstock.protocol.errors import AdapterError, ConfigError
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.model import Model


def source_of(folder: Path, family: str = "Qwen3VL") -> Path:
    seeing_model(folder / "source", family)
    (folder / "source" / "preprocessor_config.json").write_text('{"image_mean": [0.1, 0.2, 0.3]}')
    (folder / "source" / "chat_template.jinja").write_text("{{ messages }}")
    return folder / "source"


def made(source: Path, name: str, kind: str, size: int = 1) -> Path:
    options = dict(group_size=32, tensor_parallel_size=size, is_cut=size > 1)
    return converted(source, source.with_name(name), kind, **options)


def check_alike(found: Model, right: Model) -> None:
    assert found.report.leftovers == []
    check_equal(found.decoder, right.decoder)
    check_equal(found.encoding.encoder, right.encoding.encoder)


@for_each("family", ["Qwen3VL", "Gemma3", ERNIE])
def test_a_converted_encoder_has_the_bits_of_quantizing_it_while_loading_on_every_rank(family, tmp_path):
    source = source_of(tmp_path, family)
    whole, cut = made(source, "whole", "int8"), made(source, "cut", "int8", size=2)
    check_alike(load_on("native", whole), load_on("native", source, quantization="int8"))
    for rank in range(2):
        check_alike(*(load_on("native", folder, ranks=Parallel(rank, 2)) for folder in (cut, whole)))


def test_its_files_are_those_of_the_source_with_int8_at_most_narrow(tmp_path):
    source = source_of(tmp_path)
    target = made(source, "narrow", "int4")
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


# --- checkpoints that others have quantized ---------------------------------------------------------------------------

DEEPSEEK = next(form for form in FLOAT8_FORMS if form.name == "deepseek")
FORMS: list[Form | Float8Form] = [
    Form("gptq"), Form("awq", is_symmetric=False), Form("pack-quantized"), DEEPSEEK,
]  # fmt: skip
LEFT_OUT = {"gptq": {}, "awq": {"modules_to_not_convert": ["visual"]}, "fp8": {"modules_to_not_convert": ["visual"]}}


def quantized(folder: Path, form: Form | Float8Form, with_encoder: bool = False) -> tuple[Path, Path, Any]:
    """The checkpoint, its twin in floats, and transformers' model of that one before it was rounded."""
    reference = seeing_model(folder / "twin", "Qwen3VL")
    config = dict(form.config if isinstance(form, Float8Form) else quantization_config(form))
    config |= LEFT_OUT.get(config["quant_method"], {"ignore": ["lm_head", "re:.*visual.*"]})
    found = quantized_copy(
        folder / "twin",
        folder / "model",
        lambda module: form if with_encoder or "visual" not in module else None,
        config,
    )
    return *found, reference


def rows_of(model: Model, reference: Any) -> torch.Tensor:
    assert model.report.leftovers == []
    scene = Scene("Qwen3VL").picture(6, 10)
    runner = SeeingRunner(slotted_runner(model))
    seen = runner.enter(scene, scene.positions(reference))
    runner.encode(seen)
    return runner.rows_of(seen)[0]


@for_each("form", FORMS)
def test_an_encoder_that_was_left_out_is_read_as_it_is(form, tmp_path):
    model, twin, _ = quantized(tmp_path, form)
    models = [load_on("native", folder) for folder in (model, twin)]
    assert models[0].report.leftovers == []
    check_equal(*(each.encoding.encoder for each in models))


@for_each(
    "form, backend", [(Form("int-quantized", bits=8, group_size=0), "native"), (DEEPSEEK, "native"), (DEEPSEEK, "fast")]
)
def test_an_encoder_in_integers_or_8_bit_floats_sees_nearly_the_same(form, backend, tmp_path):
    *folders, reference = quantized(tmp_path, form, with_encoder=True)
    found, right = (rows_of(load_on(backend, folder), reference) for folder in folders)
    assert torch.cosine_similarity(found.float(), right.float()).min() > 0.998


def test_tensors_of_other_shapes_are_refused_by_name(tmp_path):
    model, *_ = quantized(tmp_path, Form("gptq"))
    tensors, name = load_file(model / "model.safetensors"), "model.visual.blocks.1.attn.proj.weight"
    save_file(tensors | {name: tensors[name][:, :32].contiguous()}, model / "model.safetensors")
    with pytest.raises(ConfigError, match=r"visual\.blocks\.1\.attn\.proj\.weight in .* has shape \(48, 32\)"):
        load_on("native", model)


def test_layers_with_groups_of_their_own_are_found_by_the_names_that_the_file_has(tmp_path):
    own, usual = Form("gptq", group_size=16), Form("gptq")
    seeing_model(tmp_path / "twin", "Qwen3VL")
    name = "model.language_model.layers.1.mlp.down_proj"
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "extra_config": {name: {"group_size": 16}}}
    model, _ = quantized_copy(
        tmp_path / "twin", tmp_path / "model",
        lambda module: None if "visual" in module else own if module == name else usual, config,
    )  # fmt: skip
    assert json.loads((model / "config.json").read_text())["quantization_config"] == config
    assert load_on("native", model).report.leftovers == []


# --- adapters ---------------------------------------------------------------------------------------------------------


def trained(folder: Path, reference: Any, modules: str) -> Any:
    """PEFT's model, whose adapter is saved into the folder."""
    from peft import LoraConfig, get_peft_model

    found = get_peft_model(deepcopy(reference), LoraConfig(r=4, lora_alpha=16, target_modules=modules))
    torch.manual_seed(9)
    for name, weight in found.named_parameters():
        if "lora_B" in name:
            weight.data = torch.randn_like(weight) / 4
    found.save_pretrained(folder)
    return found.eval()


@for_each("family", ["Qwen3VL", "Qwen2_5_VL"])
def test_an_adapter_of_the_text_part_gives_pefts_tokens_behind_a_picture(family, tmp_path):
    reference = seeing_model(tmp_path / "model", family)
    scene = Scene(family).text(7, 8).picture(6, 10).text(30, 31)
    asked = [scene.prompt(number, reference, max_tokens=12, lora_name=name) for number, name in enumerate(["a", None])]
    with_adapter = trained(tmp_path / "adapter", reference, r".*language_model.*\.(q_proj|o_proj|up_proj|down_proj)")
    model = load_on("native", tmp_path / "model", dtype="float32", max_loras=1, max_lora_rank=8)
    model.adapters.load(0, tmp_path / "adapter")
    engine = TinyEngine(slotted_runner(model))
    engine.load_adapters("a")
    found, without = engine.run(*asked)
    assert found.tokens != without.tokens
    assert logits_behind(with_adapter, model, scene, found.tokens).argmax(-1).tolist() == found.tokens


def test_one_that_changes_the_encoder_is_refused_with_what_to_do(tmp_path):
    trained(tmp_path / "adapter", seeing_model(tmp_path / "model", "Qwen3VL"), "all-linear")
    model = load_on("native", tmp_path / "model", max_loras=1, max_lora_rank=8)
    with pytest.raises(AdapterError, match=r"changes visual\.\S+ That is of the encoder of pictures.*Merge"):
        model.adapters.load(0, tmp_path / "adapter")
