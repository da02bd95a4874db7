"""Models that see on a GPU's kernels, in Triton's interpreter: rows, positions, spans, experts, answers.

In one process, with the real runner. Slow, so scenes are small, and the quick tests have those families alone that
need something of their own.
"""

from builders.interpreted import on_triton  # isort: skip  before anything that imports triton

from typing import Any

import pytest
from builders.backends import load_on
from builders.runner_harness import slotted_runner
from builders.seeing_models import ERNIE, SQUARES, seeing_model
from builders.seeing_runner import SeeingRunner, Seen
from builders.seeing_scenes import scene

from penstock.worker.backends.backend import BackendOptions
from penstock.worker.start.model import Model

FAMILIES = ("Gemma3", ERNIE, "Qwen3VL", "Qwen2_5_VL", "Idefics3")


def scenes(family: str) -> list[Any]:
    if family in SQUARES:
        return [scene(family).text(7, 8).picture().text(30), scene(family).text(50, 51)]
    return [scene(family).text(7).picture(2, 4).video(2, 2, 4, seed=6), scene(family).text(50, 51)]


# Two layers of each of these, with a window and without, dense and sparse; and one of the encoder.
SMALL: dict[str, dict[str, Any]] = {
    "Gemma3": dict(
        text={"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}, num_hidden_layers=1
    ),
    ERNIE: dict(text={"num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"]}, depth=1),
}


def answers(model: Model, scenes: list[Any], reference: Any, apart: bool = False, budget: int = 13) -> list[Seen]:
    runner = SeeingRunner(slotted_runner(model, max_model_len=256, num_blocks=64))
    seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes]
    for each in seen:
        runner.encode(each)
    for group in [[each] for each in seen] if apart else [seen]:
        runner.answer(group, 2, budget)
    return seen


@pytest.mark.parametrize(
    "family", [family if family in SMALL else pytest.param(family, marks=pytest.mark.long) for family in FAMILIES]
)
def test_its_answers_about_pictures_are_the_processors(tmp_path, family):
    reference = seeing_model(tmp_path, family, **SMALL.get(family, {}))
    model = on_triton(tmp_path, dtype="float32")
    assert model.report.leftovers == []
    expected = answers(load_on("invariant", tmp_path, dtype="float32"), scenes(family), reference)
    found = answers(model, scenes(family), reference)
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    for own, other in zip(found, expected, strict=True):
        for place, (these, those) in enumerate(zip(own.logprobs, other.logprobs, strict=True)):
            off = max(abs(logprob - those[token]) for token, logprob in these.items() if token in those)
            assert off < 1e-3, f"token {place} of {own.scene.tokens}"


@pytest.mark.long
@pytest.mark.parametrize("family", SMALL)
def test_in_the_deterministic_form_company_and_chunks_change_no_bit_of_what_a_picture_says(tmp_path, family):
    reference = seeing_model(tmp_path, family, seed=1)
    model = on_triton(tmp_path, dtype="float32", options=BackendOptions(deterministic=True))
    found = [
        [each.logprobs for each in answers(model, scenes(family), reference, apart, budget)]
        for apart, budget in ((True, 100), (False, 11))
    ]
    assert found[0] == found[1]
