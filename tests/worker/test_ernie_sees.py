"""ERNIE-4.5-VL against transformers in float32: rows, experts by kind of token, positions, greedy tokens."""

from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.runner_harness import slotted_runner
from builders.seeing_ernie import IMAGE_END, Scene, paddle_ernie, seeing_model
from builders.seeing_runner import SeeingRunner

from penstock.worker.models.load import Model


def scenes() -> list[Scene]:
    """One picture, odd sizes, many, videos, a mark at the very end, text before and behind, and no picture at all."""
    return [
        Scene("").text(7, 8).picture(6, 10).text(30, 31, 32),
        Scene("").picture(2, 2, seed=1).text(11).picture(14, 6, seed=2).picture(2, 12, seed=3),
        Scene("").text(*range(50, 90)),
        Scene("").text(9).video(6, 6, 8, seed=4).text(12, 13),
        Scene("").text(9).picture(4, 6, seed=5).video(2, 2, 6, seed=6).text(5),
    ]


def check(reference: Any, model: Model) -> None:
    assert model.report.leftovers == []
    colours = model.config.vision.image_colours
    runner = SeeingRunner(slotted_runner(model, max_model_len=512, num_blocks=128))
    seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes()]
    for each in seen:
        runner.encode(each, steps=2)
        for entry, medium in zip(each.entries, each.scene.media, strict=True):
            pixels, grid = Scene("", media=[medium]).given(colours.mean, colours.deviation).values()
            features = reference.model.get_image_features
            if medium.kind == "video":
                features = reference.model.get_video_features
            with torch.inference_mode():
                expected = torch.cat(features(pixels, grid).pooler_output)
            found = runner.runner.media.rows[runner.runner.media._of_entries[entry]]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    runner.answer(seen, 64, budget=39)
    assert seen[1].scene.tokens[-1] == IMAGE_END
    for number, each in enumerate(seen):
        prompt = each.scene.tokens
        whole = torch.tensor([prompt + each.tokens])
        given = each.scene.given(colours.mean, colours.deviation)
        if each.scene.media:
            kinds = each.scene.types(whole.shape[1]), each.scene.expert_types(whole.shape[1])
            given |= {"mm_token_type_ids": kinds[0], "moe_mm_token_type_ids": kinds[1]}
        with torch.inference_mode():
            logits = reference(whole, **given).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == each.tokens, f"scene {number}"
        expected = logits.log_softmax(-1)
        for place, found in enumerate(each.logprobs):
            off = max(abs(expected[place, token].item() - logprob) for token, logprob in found.items())
            assert off < 1e-3, f"scene {number}, token {place}"


@pytest.mark.parametrize("backend", ["native", "invariant"])
def test_ernie_sees_as_transformers_does(backend, tmp_path):
    reference = seeing_model(tmp_path)
    check(reference, load_on(backend, tmp_path, dtype="float32"))


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_company_and_chunks_change_no_bit_of_what_ernie_sees(quantization, tmp_path):
    reference = seeing_model(tmp_path, seed=1)
    model = load_on("native", tmp_path, dtype="float32", quantization=quantization)

    def answers(apart: bool, budget: int, steps: int) -> list[list[dict[int, float]]]:
        runner = SeeingRunner(slotted_runner(model, max_model_len=512, num_blocks=128))
        seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes()]
        for each in seen:
            runner.encode(each, steps)
        for group in [[each] for each in seen] if apart else [seen]:
            runner.answer(group, 8, budget)
        return [each.logprobs for each in seen]

    assert answers(True, 200, 3) == answers(False, 13, 1)


def test_ernie_sees_the_same_in_paddles_layout(tmp_path):
    original = tmp_path / "original"
    reference = seeing_model(original, seed=2)
    check(reference, load_on("native", paddle_ernie(tmp_path / "ERNIE-VL-Paddle", original), dtype="float32"))
