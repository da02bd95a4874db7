"""LoRA on a model that sees: adapters of the text part give PEFT's numbers, and those of the encoder are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.runner_harness import TinyEngine, slotted_runner
from builders.seeing_models import Scene, seeing_model

from penstock.engine.adapters import AdapterTable
from penstock.protocol.adapter_messages import AdapterLoaded, LoadLora
from penstock.protocol.errors import AdapterError

FAMILIES = ("Qwen3VL", "Qwen2_5_VL")


def trained(folder: Path, reference: Any, modules: str) -> Any:
    """PEFT's model, whose adapter is saved into the folder."""
    from peft import LoraConfig, get_peft_model

    found = get_peft_model(reference, LoraConfig(r=4, lora_alpha=16, target_modules=modules))
    torch.manual_seed(9)
    for name, weight in found.named_parameters():
        if "lora_B" in name:
            weight.data = torch.randn_like(weight) / 4
    found.save_pretrained(folder)
    return found.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_of_the_text_part_gives_pefts_tokens_behind_a_picture(family, tmp_path):
    reference = seeing_model(tmp_path / "model", family)
    scene = Scene(family).text(7, 8).picture(6, 10).text(30, 31)
    asked = [scene.prompt(number, reference, max_tokens=24, lora_name=name) for number, name in enumerate(["a", None])]
    with_adapter = trained(tmp_path / "adapter", reference, r".*language_model.*\.(q_proj|o_proj|up_proj|down_proj)")
    model = load_on("native", tmp_path / "model", dtype="float32", max_loras=1, max_lora_rank=8)
    model.adapters.load(0, tmp_path / "adapter")
    engine = TinyEngine(slotted_runner(model))
    engine.scheduler.adapters = AdapterTable(1, 1, lambda message: None, lambda message: None)
    engine.scheduler.adapters.load(LoadLora(0, "a", ""))
    engine.scheduler.adapters.loaded(AdapterLoaded(0, 0))
    found, without = engine.run(*asked)
    assert found.tokens != without.tokens
    whole, colours = torch.tensor([scene.tokens + found.tokens]), model.config.vision.image_colours
    given = scene.given(colours.mean, colours.deviation)
    with torch.inference_mode():
        logits = with_adapter(whole, mm_token_type_ids=scene.types(whole.shape[1]), **given).logits[0]
    assert logits[len(scene.tokens) - 1 : -1].argmax(-1).tolist() == found.tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_one_that_changes_the_encoder_is_refused_with_what_to_do(family, tmp_path):
    trained(tmp_path / "adapter", seeing_model(tmp_path / "model", family), "all-linear")
    model = load_on("native", tmp_path / "model", max_loras=1, max_lora_rank=8)
    with pytest.raises(AdapterError, match=r"changes visual\.\S+ That is of the encoder of pictures.*Merge"):
        model.adapters.load(0, tmp_path / "adapter")
