"""What is kept of prompts with pictures: conversations, samples, beams and cells have the bits of computing anew."""

from typing import Any

import pytest
from builders.backends import load_on
from builders.cases import for_each
from builders.runner_harness import Answer, TinyEngine, engine_of, expecting
from builders.seeing_models import seeing_model
from builders.seeing_scenes import Scene

from penstock.protocol.messages import Prompt
from penstock.protocol.parameters.beams import BeamSearchParams
from penstock.protocol.wire import values
from penstock.worker.start.model import Model

TURNS, BLOCK = 5, 16


@pytest.fixture(scope="module", params=["Qwen3VL", "Qwen3_5"])
def seeing(request, tmp_path_factory) -> tuple[str, Any, Model]:
    """With attention alone, and with states: the family, transformers' model and ours."""
    folder = tmp_path_factory.mktemp("seeing")
    reference = seeing_model(folder, request.param)
    return request.param, reference, load_on("native", folder, dtype="float32")


def engine(model: Model, **options: Any) -> TinyEngine:
    return engine_of(model, max_model_len=512, **{"num_blocks": 128, **options})


def conversation(seeing: tuple[str, Any, Model], **options: Any) -> tuple[list[Answer], list[int], list[int], int]:
    """The answers, the tokens computed and the media encoded for each turn, and how long it was in the end."""
    family, reference, model = seeing
    talk, scene = engine(model, **options), Scene(family).text(7, 8).picture(8, 14, seed=3).text(*range(30, 36))
    answers, computed, encoded = [], [], []
    for turn in range(TURNS):
        planned = len(talk.plans)
        answers += talk.run(scene.prompt(turn, reference, seed=turn, temperature=0.8, max_tokens=5 + turn, logprobs=2))
        plans = talk.plans[planned:]
        computed.append(sum(sum(values(plan.num_tokens)) for plan in plans))
        encoded.append(sum(encode.first == 0 for plan in plans for encode in plan.encodes))
        scene.text(*answers[-1].tokens, *((11 * turn + place) % 290 + 5 for place in range(3 + turn)))
    return answers, computed, encoded, len(scene.tokens)


@pytest.fixture(scope="module")
def uncached(seeing) -> list[Answer]:
    answers, computed, encoded, length = conversation(seeing, shares_prefixes=False)
    assert sum(computed) > 2 * length and encoded == [1, 0, 0, 0, 0]
    return answers


@for_each("budget", [512, 37])
def test_a_conversation_about_a_picture_encodes_it_once_and_computes_each_token_once(seeing, uncached, budget):
    answers, computed, encoded, length = conversation(seeing, max_num_batched_tokens=budget)
    assert answers == uncached
    assert sum(computed) <= length + TURNS * BLOCK and encoded == [1, 0, 0, 0, 0]


def test_two_conversations_that_evict_one_another_come_back_from_cells_without_an_encoder(seeing):
    family, reference, model = seeing
    scenes = [Scene(family).text(*range(5, 25)).picture(8, 30, seed=seed).text(*range(40, 90)) for seed in (1, 2)]
    # One picture has 60 rows, so each takes the other's place.
    tight = engine(model, num_blocks=12, num_states=3, num_cells=40, num_media_rows=60)
    roomy, computed = engine(model, shares_prefixes=False), []
    for number, scene in enumerate((*scenes, *scenes)):
        planned, asked = len(tight.plans), (number, reference)
        right = roomy.run(scene.prompt(*asked, max_tokens=6, logprobs=1))
        assert tight.run(scene.prompt(*asked, max_tokens=6, logprobs=1)) == right
        computed.append(sum(sum(values(plan.num_tokens)) for plan in tight.plans[planned:]))
    assert all(again < 40 < first for first, again in zip(computed[:2], computed[2:], strict=True))
    assert not any(plan.encodes for plan in tight.plans[planned:])


def asked(family: str, reference: Any) -> list[Prompt]:
    """Three samples, and a search, of a picture each, and one of text."""
    found = []
    for number in range(4):
        scene = Scene(family).text(7, number).picture(4, 6 + 2 * number, seed=number).text(*range(30, 60))
        given: dict[str, Any] = dict(n=3, temperature=1.0) if number % 2 else dict(n=4)
        one = scene.prompt(number, reference, seed=number, max_tokens=12, **given)
        if not number % 2:
            one.beams = BeamSearchParams(beam_width=4, max_tokens=12, early_stopping="never")
        found.append(one)
    return found


def test_samples_and_beams_behind_pictures_are_as_alone(seeing):
    family, reference, model = seeing
    alone = [answer for each in asked(family, reference) for answer in engine(model).run(each)]
    assert len({tuple(answer.tokens) for answer in alone}) == 4 + 3 + 4 + 3
    assert not any(answer.error for answer in alone)
    for shape in (
        {}, {"num_blocks": 20, "num_cells": 60}, {"num_slots": 5}, {"layered": 1}, {"layered": 2},
        {"drafts": 1}, {"drafts": 2, "num_blocks": 20, "num_cells": 60},
    ):  # fmt: skip
        together = engine(model, num_media_rows=20, **shape, max_num_batched_tokens=48)
        assert together.run(*expecting(asked(family, reference), alone)) == alone, shape
        assert together.num_layered > 0 or "layered" not in shape
        started = [encode.entry for plan in together.plans for encode in plan.encodes if encode.first == 0]
        assert "num_blocks" in shape or len(started) == 4, "one for all samples of a prompt"
