"""Models that see squares of one size, against transformers in float32: rows, greedy tokens, log-probabilities."""

from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.runner_harness import slotted_runner
from builders.seeing_runner import SeeingRunner
from builders.seeing_squares import Scene, plain, seeing_model

from penstock.worker.models.load import Model

ROWS = {"Gemma3": 9, "Idefics3": 4, "SmolVLM": 9}


def scenes(family: str) -> list[Scene]:
    """One square, many, several pictures, text before and behind, and no picture at all."""
    rows = ROWS[family]
    return [
        Scene(family, rows).text(7, 8).picture().text(30, 31, 32),
        Scene(family, rows).picture(3, seed=1).text(11).picture(seed=2).picture(2, seed=3),
        Scene(family, rows).text(*range(50, 90)),
    ]


def check(reference: Any, model: Model, family: str) -> None:
    assert model.report.leftovers == []
    colours = model.config.vision.image_colours
    runner = SeeingRunner(slotted_runner(model, max_model_len=512, num_blocks=128))
    seen = [runner.enter(scene, b"") for scene in scenes(family)]
    for each in seen:
        runner.encode(each, steps=2)
        for entry, medium in zip(each.entries, each.scene.media, strict=True):
            pixels = plain(medium, colours.mean, colours.deviation)
            with torch.inference_mode():
                out = reference.model.get_image_features(pixels if family == "Gemma3" else pixels[None])
            expected = out.pooler_output if family == "Gemma3" else torch.cat(out.pooler_output)
            found = runner.runner.media.rows[runner.runner.media._of_entries[entry]]
            torch.testing.assert_close(found, expected.flatten(0, -2), rtol=1e-4, atol=1e-4)
    runner.answer(seen, 64, budget=20)
    for number, each in enumerate(seen):
        prompt = each.scene.tokens
        whole = torch.tensor([prompt + each.tokens])
        with torch.inference_mode():
            out = reference(whole, **each.scene.given(colours.mean, colours.deviation, whole.shape[1]))
        logits = out.logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == each.tokens, f"scene {number}"
        expected = logits.log_softmax(-1)
        for place, found in enumerate(each.logprobs):
            off = max(abs(expected[place, token].item() - logprob) for token, logprob in found.items())
            assert off < 1e-3, f"scene {number}, token {place}"


@pytest.mark.parametrize("family", ["Gemma3", "Idefics3", "SmolVLM"])
def test_models_that_see_squares_answer_as_transformers_do(family, tmp_path):
    reference = seeing_model(tmp_path, family)
    check(reference, load_on("native", tmp_path, dtype="float32"), family)


@pytest.mark.parametrize("backend", ["invariant", "fast"])
def test_torchs_operations_see_whole_spans_too(backend, tmp_path):
    reference = seeing_model(tmp_path, "Gemma3", seed=3)
    check(reference, load_on(backend, tmp_path, dtype="float32"), "Gemma3")


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_company_and_chunks_change_no_bit_of_what_a_picture_says(quantization, tmp_path):
    seeing_model(tmp_path, "Gemma3", seed=5)
    model = load_on("native", tmp_path, dtype="float32", quantization=quantization)

    def answers(apart: bool, budget: int, steps: int) -> list[list[dict[int, float]]]:
        runner = SeeingRunner(slotted_runner(model, max_model_len=512, num_blocks=128))
        seen = [runner.enter(scene, b"") for scene in scenes("Gemma3")]
        for each in seen:
            runner.encode(each, steps)
        for group in [[each] for each in seen] if apart else [seen]:
            runner.answer(group, 8, budget)
        return [each.logprobs for each in seen]

    assert answers(True, 200, 3) == answers(False, 13, 1)
