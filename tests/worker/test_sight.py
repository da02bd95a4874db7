"""Models that see, against transformers in float32: rows of pictures and videos, greedy tokens, log-probabilities; and
that no step, thread or neighbour changes a bit of them, nor what is kept of prompts for conversations, samples, beams
and cells.
"""

from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.runner_harness import Answer, TinyEngine, engine_of, expecting, fast_steps, slotted_runner
from builders.seeing_models import ERNIE, SQUARES, paddle_ernie, seeing_model
from builders.seeing_runner import SeeingRunner, Seen, check_sees, logits_behind
from builders.seeing_scenes import Scene, scene

from penstock.protocol.messages import Prompt
from penstock.protocol.parameters.beams import BeamSearchParams
from penstock.protocol.wire import values
from penstock.worker.media import work
from penstock.worker.plan_error import PlanError
from penstock.worker.start.model import Model

# Torch takes long for a token, so there answers are short.
SEEN = [
    *(("native", family, 32) for family in ("Qwen3VL", "Qwen2_5_VL", "Qwen2VL", "Qwen3VLMoe", ERNIE, *SQUARES)),
    *(("invariant", family, 3) for family in ("Qwen2_5_VL", ERNIE, "Gemma3")),
    *(("fast", family, 3) for family in ("Qwen2_5_VL", "Gemma3")),
]
# Families that are apart: experts by kind of token, whole spans, and positions in three axes.
FORMS: list[tuple[str, dict[str, Any]]] = [
    (ERNIE, {"dtype": "float32", "quantization": "int8"}), ("Gemma3", {"dtype": "float32", "quantization": "int4"}),
    ("Qwen3VL", {"dtype": "float32"}), ("Qwen3VL", {"dtype": "bfloat16", "quantization": "int8"}),
]  # fmt: skip


def scenes(family: str) -> list[Scene]:
    """One picture, odd sizes, many, a video, text before and behind, and no picture at all."""
    if family in SQUARES:
        return [
            scene(family).text(7, 8).picture().text(30, 31, 32),
            scene(family).picture(3, seed=1).text(11).picture(seed=2).picture(2, seed=3),
            scene(family).text(*range(50, 90)),
        ]
    is_ernie = family == ERNIE
    many = scene(family).picture(2, 2, seed=1).text(11).picture(14, 6, seed=2).picture(2, 34, seed=3)
    return [
        scene(family).text(7, 8).picture(6, 10).text(30, 31, 32),
        many if is_ernie else many.text(40, 41),  # a mark ends a prompt of ERNIE's, and is for the experts of media
        scene(family).text(*range(50, 90)),
        scene(family).text(9).video(6 if is_ernie else 5, 6, 8, seed=4).text(12, 13),
        scene(family).text(9).picture(4, 6, seed=5).video(2, 2, 6, seed=6).text(5),
    ]


@for_each("backend, family, num_tokens", SEEN)
def test_models_that_see_answer_as_transformers_do(backend, family, num_tokens, tmp_path):
    reference = seeing_model(tmp_path, family)
    check_sees(reference, load_on(backend, tmp_path, dtype="float32"), scenes(family), num_tokens=num_tokens)


def test_ernie_sees_the_same_in_paddles_layout(tmp_path):
    original = tmp_path / "original"
    reference = seeing_model(original, ERNIE, seed=2)
    folder = paddle_ernie(tmp_path / "ERNIE-VL-Paddle", original)
    check_sees(reference, load_on("native", folder, dtype="float32"), scenes(ERNIE), num_tokens=8)


@for_each("family, form", FORMS)
def test_company_and_chunks_change_no_bit_of_an_answer_about_pictures(family, form, tmp_path):
    reference = seeing_model(tmp_path, family, seed=1)
    model, found = load_on("native", tmp_path, **form), []
    for apart, budget, steps in ((True, 400, 3), (False, 13, 1)):
        runner = SeeingRunner(slotted_runner(model, max_model_len=512, num_blocks=128))
        seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes(family)]
        for each in seen:
            runner.encode(each, steps)
        for group in [[each] for each in seen] if apart else [seen]:
            runner.answer(group, 6, budget)
        found.append([(each.tokens, each.logprobs) for each in seen])
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def seeing(tmp_path_factory) -> tuple[Any, Model]:
    """Transformers' model, and ours."""
    folder = tmp_path_factory.mktemp("seeing")
    return seeing_model(folder, "Qwen3VL"), load_on("native", folder, dtype="float32")


def rows_of(runner: SeeingRunner, seen: Seen) -> torch.Tensor:
    return torch.cat(runner.rows_of(seen))


PICTURES = Scene("Qwen3VL").picture(2, 2, seed=1).text(11).picture(14, 6, seed=2).picture(2, 34, seed=3)
# In how many steps pictures are encoded, how many patches at a time, and by how many threads.
CUTS = ((1, 1024, 1), (4, 1024, 1), (1, 20, 2), (23, 1024, 3), (97, 36, 2), (150, 28, 1))


@for_each("backend, form, scene", [
    ("native", {"dtype": "float32"}, PICTURES),
    ("native", {"dtype": "bfloat16", "quantization": "int8"}, PICTURES),
    ("native", {"dtype": "float32"}, Scene("Qwen2_5_VL").video(9, 6, 8, seed=4).picture(4, 8, seed=5)),
    ("invariant", {"dtype": "float32"}, Scene("Qwen2_5_VL").video(5, 6, 8, seed=4).picture(4, 8, seed=5)),
])  # fmt: skip
def test_rows_are_the_same_however_their_work_is_cut_into_steps_and_by_any_threads(
    backend, form, scene, monkeypatch, tmp_path
):
    reference = seeing_model(tmp_path, scene.family)
    model, found = load_on(backend, tmp_path, **form), []
    monkeypatch.setattr(work, "_FEWEST", 1)  # a step may end behind any group of patches
    for steps, together, threads in CUTS if backend == "native" else CUTS[-2:]:
        try:
            model.backend.use_threads(threads)
            monkeypatch.setattr(work, "MOST_PATCHES", together)
            runner = SeeingRunner(slotted_runner(model))
            seen = runner.enter(scene, scene.positions(reference))
            runner.encode(seen, steps)
            found.append(rows_of(runner, seen))
        finally:
            model.backend.use_threads(1)
    assert all(torch.equal(found[0], each) for each in found[1:])


def test_one_medium_is_encoded_at_a_time_and_leaves_its_memory_when_it_is_dropped(seeing):
    reference, model = seeing
    runner = SeeingRunner(slotted_runner(model))
    first, second = (runner.enter(scene, scene.positions(reference)) for scene in scenes("Qwen3VL")[:2])
    [begun], [other, *_] = first.scene.media, second.scene.media
    media = runner.runner.media
    runner.step([], [begun.encode(0, 0, 2, 5)])
    assert media.encoding.stream.size
    with pytest.raises(PlanError, match="amid another"):
        runner.step([], [other.encode(1, 0, 1, 5)])
    for encode in (begun.encode(0, 3, 1, 5), begun.encode(0, 2, 4, 5)):
        with pytest.raises(PlanError, match="with 2 done"):
            runner.step([], [encode])
    runner.step([], dropped=[0])
    assert not media.encoding.stream.size and len(media._free) == len(media.rows)
    with pytest.raises(PlanError, match="hasn't begun"):
        runner.step([], [begun.encode(0, 2, 1, 5)])
    runner.encode(second, 3)
    alone = SeeingRunner(slotted_runner(model))
    again = alone.enter(second.scene, second.positions)
    alone.encode(again)
    assert torch.equal(rows_of(runner, second), rows_of(alone, again))


def test_a_picture_that_was_encoded_serves_others_until_it_is_dropped(seeing):
    reference, model = seeing
    runner = SeeingRunner(slotted_runner(model, num_media_rows=15))
    scene = scenes("Qwen3VL")[0]
    first = runner.enter(scene, scene.positions(reference))
    runner.encode(first)
    second = runner.enter(scene, scene.positions(reference), first.entries)
    runner.answer([first, second], 4, budget=11)
    assert first.tokens == second.tokens
    runner.step([], dropped=first.entries)
    third = runner.enter(scene, scene.positions(reference))
    runner.encode(third)  # in the rows that are free again
    with pytest.raises(PlanError, match="which isn't encoded"):
        runner.step([(runner.enter(scene, first.positions, first.entries), 10)])
    with pytest.raises(PlanError, match="0 free"):
        runner.encode(runner.enter(scene, first.positions))


def test_answers_behind_pictures_are_fast_steps(seeing):
    reference, model = seeing
    answers = []
    for top in (None, 5):
        runner = SeeingRunner(slotted_runner(model, num_blocks=128), top)
        taken = fast_steps(runner.runner)
        seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes("Qwen3VL")]
        for each in seen:
            runner.encode(each)
        runner.answer(seen, 6, budget=400)
        assert len(taken) == (5 if top is None else 0)
        answers.append([each.tokens for each in seen])
    assert answers[0] == answers[1]


@for_each("family", ["Qwen3_5", "Qwen3VL"])
def test_an_engine_gives_answers_of_transformers(family, tmp_path):
    """With whatever chunks, steps of the encoder and shared prefixes it plans."""
    reference = seeing_model(tmp_path, family)
    model = load_on("native", tmp_path, dtype="float32")
    engine = engine_of(model, max_model_len=512, num_blocks=256, max_num_batched_tokens=48)
    asked, again = (
        [scene.prompt(first + number, reference, max_tokens=24) for number, scene in enumerate(scenes(family))]
        for first in (0, 10)
    )
    for asked_of, answer, other in zip(scenes(family), engine.run(*asked), engine.run(*again), strict=True):
        assert answer.error is None and answer.tokens == other.tokens
        assert logits_behind(reference, model, asked_of, answer.tokens).argmax(-1).tolist() == answer.tokens


# --- what is kept -----------------------------------------------------------------------------------------------------


TURNS, BLOCK = 5, 16


@pytest.fixture(scope="module", params=["Qwen3VL", "Qwen3_5"])
def kept(request, tmp_path_factory) -> tuple[str, Any, Model]:
    """With attention alone, and with states: the family, transformers' model and ours."""
    folder = tmp_path_factory.mktemp("seeing")
    reference = seeing_model(folder, request.param)
    return request.param, reference, load_on("native", folder, dtype="float32")


def engine(model: Model, **options: Any) -> TinyEngine:
    return engine_of(model, max_model_len=512, **{"num_blocks": 128, **options})


def conversation(kept: tuple[str, Any, Model], **options: Any) -> tuple[list[Answer], list[int], list[int], int]:
    """The answers, the tokens computed and the media encoded for each turn, and how long it was in the end."""
    family, reference, model = kept
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
def uncached(kept) -> list[Answer]:
    answers, computed, encoded, length = conversation(kept, shares_prefixes=False)
    assert sum(computed) > 2 * length and encoded == [1, 0, 0, 0, 0]
    return answers


@for_each("budget", [512, 37])
def test_a_conversation_about_a_picture_encodes_it_once_and_computes_each_token_once(kept, uncached, budget):
    answers, computed, encoded, length = conversation(kept, max_num_batched_tokens=budget)
    assert answers == uncached
    assert sum(computed) <= length + TURNS * BLOCK and encoded == [1, 0, 0, 0, 0]


def test_two_conversations_that_evict_one_another_come_back_from_cells_without_an_encoder(kept):
    family, reference, model = kept
    scenes = [Scene(family).text(*range(5, 25)).picture(8, 30, seed=seed).text(*range(40, 90)) for seed in (1, 2)]
    # One picture has 60 rows, so each takes the other's place.
    tight = engine(model, num_blocks=12, num_states=3, num_cells=40, num_media_rows=60)
    roomy, computed = engine(model, shares_prefixes=False), []
    for number, each in enumerate((*scenes, *scenes)):
        planned, asked = len(tight.plans), (number, reference)
        right = roomy.run(each.prompt(*asked, max_tokens=6, logprobs=1))
        assert tight.run(each.prompt(*asked, max_tokens=6, logprobs=1)) == right
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


def test_samples_and_beams_behind_pictures_are_as_alone(kept):
    family, reference, model = kept
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
