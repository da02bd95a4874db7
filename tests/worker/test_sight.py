"""Models that see, against transformers in float32: rows of pictures and videos, greedy tokens, log-probabilities."""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.runner_harness import slotted_runner
from builders.seeing_models import Scene, seeing_model
from builders.seeing_runner import SeeingRunner

from penstock.worker.models.load import Model


def scenes(family: str) -> list[Scene]:
    """One picture, odd sizes, many, a video, text before and behind, and no picture at all."""
    return [
        Scene(family).text(7, 8).picture(6, 10).text(30, 31, 32),
        Scene(family).picture(2, 2, seed=1).text(11).picture(14, 6, seed=2).picture(2, 34, seed=3).text(40, 41),
        Scene(family).text(*range(50, 90)),
        Scene(family).text(9).video(5, 6, 8, seed=4).text(12, 13),
        Scene(family).text(9).picture(4, 6, seed=5).video(2, 2, 6, seed=6).text(5),
    ]


def check(folder: Path, reference: Any, model: Model, family: str, layers: int = 3) -> None:
    assert model.report.leftovers == []
    colours = model.config.vision.image_colours
    runner = SeeingRunner(slotted_runner(model, max_model_len=512, num_blocks=128))
    seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes(family)]
    for each in seen:
        runner.encode(each, layers)
        check_rows(runner, each, reference)
    runner.answer(seen, 64, budget=40)
    for number, each in enumerate(seen):
        prompt = each.scene.tokens
        whole = torch.tensor([prompt + each.tokens])
        given = each.scene.given(colours.mean, colours.deviation)
        types = {"mm_token_type_ids": each.scene.types(whole.shape[1])} if each.scene.media else {}
        with torch.inference_mode():
            logits = reference(whole, **types, **given).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == each.tokens, f"scene {number}"
        expected = logits.log_softmax(-1)
        for place, found in enumerate(each.logprobs):
            off = max(abs(expected[place, token].item() - logprob) for token, logprob in found.items())
            assert off < 1e-3, f"scene {number}, token {place}"


def check_rows(runner: SeeingRunner, seen: Any, reference: Any) -> None:
    media, colours = runner.runner.media, runner.runner.media.config.image_colours
    for entry, medium in zip(seen.entries, seen.scene.media, strict=True):
        alone = Scene(seen.scene.family, media=[medium]).given(colours.mean, colours.deviation)
        pixels, grid = alone.values()
        with torch.inference_mode():
            out = reference.model.visual(pixels, grid)
        expected = torch.cat((out.pooler_output, *(getattr(out, "deepstack_features", None) or ())), 1)
        found = media.rows[media._of_entries[entry]]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["Qwen3VL", "Qwen2_5_VL", "Qwen2VL", "Qwen3VLMoe"])
def test_models_that_see_answer_as_transformers_do(family, tmp_path):
    reference = seeing_model(tmp_path, family)
    check(tmp_path, reference, load_on("native", tmp_path, dtype="float32"), family)


@pytest.mark.parametrize("backend", ["invariant", "fast"])
def test_torchs_operations_see_the_same(backend, tmp_path):
    reference = seeing_model(tmp_path, "Qwen2_5_VL", seed=3)
    check(tmp_path, reference, load_on(backend, tmp_path, dtype="float32"), "Qwen2_5_VL")
