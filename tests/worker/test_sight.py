"""Models that see, against transformers in float32: rows of pictures and videos, greedy tokens, log-probabilities."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.runner_harness import SlottedRunner, TinyEngine, slotted_runner
from builders.seeing_models import Scene, seeing_model
from builders.seeing_runner import SeeingRunner

from penstock.protocol.errors import ConfigError
from penstock.protocol.messages import StepPlan
from penstock.worker.media import work
from penstock.worker.models.config import read_config
from penstock.worker.models.load import Model
from penstock.worker.plan_error import PlanError

FORMS = (("float32", None), ("bfloat16", "int8"))


def scenes(family: str) -> list[Scene]:
    """One picture, odd sizes, many, a video, text before and behind, and no picture at all."""
    return [
        Scene(family).text(7, 8).picture(6, 10).text(30, 31, 32),
        Scene(family).picture(2, 2, seed=1).text(11).picture(14, 6, seed=2).picture(2, 34, seed=3).text(40, 41),
        Scene(family).text(*range(50, 90)),
        Scene(family).text(9).video(5, 6, 8, seed=4).text(12, 13),
        Scene(family).text(9).picture(4, 6, seed=5).video(2, 2, 6, seed=6).text(5),
    ]


def check(folder: Path, reference: Any, model: Model, family: str, steps: int = 3) -> None:
    assert model.report.leftovers == []
    colours = model.config.vision.image_colours
    runner = SeeingRunner(slotted_runner(model, max_model_len=512, num_blocks=128))
    seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes(family)]
    for each in seen:
        runner.encode(each, steps)
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


@pytest.fixture(scope="module")
def seeing(tmp_path_factory) -> tuple[Any, Model, Model]:
    """Transformers' model, and ours in float32 and with int8 products."""
    folder = tmp_path_factory.mktemp("seeing")
    reference = seeing_model(folder, "Qwen3VL")
    models = (load_on("native", folder, dtype=dtype, quantization=kind) for dtype, kind in FORMS)
    return reference, *models


def rows_of(runner: SeeingRunner, seen: Any) -> torch.Tensor:
    media = runner.runner.media
    return torch.cat([media.rows[media._of_entries[entry]] for entry in seen.entries])


@pytest.fixture
def small_cuts(monkeypatch) -> None:
    """A step may end behind any group of patches."""
    monkeypatch.setattr(work, "_FEWEST", 1)


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_rows_are_the_same_however_their_work_is_cut_into_steps_and_by_any_threads(
    form, seeing, small_cuts, monkeypatch
):
    reference, *models = seeing
    model, scene = models[form], scenes("Qwen3VL")[1]
    found = []
    for steps, together, threads in ((1, 1024, 1), (4, 1024, 1), (1, 20, 2), (23, 1024, 3), (97, 36, 2), (1000, 8, 1)):
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


@pytest.mark.parametrize("family", ["Qwen3VL", "Qwen2_5_VL", "Qwen2_5_VL on torch"])
def test_frames_of_a_video_are_the_same_however_they_are_cut(family, small_cuts, monkeypatch, tmp_path):
    family, *torchs = family.split(" ")
    reference = seeing_model(tmp_path, family)
    model = load_on("invariant" if torchs else "native", tmp_path, dtype="float32")
    scene = Scene(family).video(9, 6, 8, seed=4).picture(4, 8, seed=5)
    found = []
    for steps, together in ((1, 1024), (7, 1024), (41, 100), (150, 28)):
        monkeypatch.setattr(work, "MOST_PATCHES", together)
        runner = SeeingRunner(slotted_runner(model))
        seen = runner.enter(scene, scene.positions(reference))
        runner.encode(seen, steps)
        found.append(rows_of(runner, seen))
    assert all(torch.equal(found[0], each) for each in found[1:])


def test_one_medium_is_encoded_at_a_time_and_leaves_its_memory_when_it_is_dropped(seeing):
    reference, model, _ = seeing
    runner = SeeingRunner(slotted_runner(model))
    first, second = (runner.enter(scene, scene.positions(reference)) for scene in scenes("Qwen3VL")[:2])
    [begun], [other, *_] = first.scene.media, second.scene.media
    media = runner.runner.media
    runner.step([], [begun.encode(0, 0, 2, 5)])
    assert media.encoding.stream.numel()
    with pytest.raises(PlanError, match="amid another"):
        runner.step([], [other.encode(1, 0, 1, 5)])
    for encode in (begun.encode(0, 3, 1, 5), begun.encode(0, 2, 4, 5)):
        with pytest.raises(PlanError, match="with 2 done"):
            runner.step([], [encode])
    runner.step([], dropped=[0])
    assert not media.encoding.stream.numel() and len(media._free) == len(media.rows)
    with pytest.raises(PlanError, match="hasn't begun"):
        runner.step([], [begun.encode(0, 2, 1, 5)])
    runner.encode(second, 3)
    alone = SeeingRunner(slotted_runner(model))
    again = alone.enter(second.scene, second.positions)
    alone.encode(again)
    assert torch.equal(rows_of(runner, second), rows_of(alone, again))


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_answers_behind_pictures_are_the_same_alone_in_company_and_in_any_chunks(form, seeing):
    reference, *models = seeing
    model = models[form]
    told = []
    for budget, alone in ((400, True), (400, False), (7, False), (1, True)):
        runner = SeeingRunner(slotted_runner(model, num_blocks=128))
        seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes("Qwen3VL")]
        for each in seen:
            runner.encode(each)
        for rows in [[each] for each in seen] if alone else [seen]:
            runner.answer(rows, 12, budget)
        told.append([(each.tokens, each.logprobs) for each in seen])
    assert all(told[0] == each for each in told[1:])


def test_a_picture_that_was_encoded_serves_others_until_it_is_dropped(seeing):
    reference, model, _ = seeing
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


def watched(runner: SlottedRunner) -> list[bool]:
    """Of each step whether it was a fast one, as they come."""
    launch, taken = runner.fast_decode.launch, []

    def watching(plan: StepPlan) -> Any:
        found = launch(plan)
        taken.append(found is not None)
        return found

    runner.fast_decode = SimpleNamespace(launch=watching)
    return taken


def test_answers_behind_pictures_are_fast_steps(seeing):
    reference, model, _ = seeing
    answers = []
    for top in (None, 5):
        runner = SeeingRunner(slotted_runner(model, num_blocks=128), top)
        launches = watched(runner.runner)
        seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes("Qwen3VL")]
        for each in seen:
            runner.encode(each)
        runner.answer(seen, 12, budget=400)
        assert sum(launches) == (11 if top is None else 0)
        answers.append([each.tokens for each in seen])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("family", ["Qwen3_5", "Qwen3VL"])
def test_an_engine_gives_answers_of_transformers(family, tmp_path):
    """With whatever chunks, steps of the encoder and shared prefixes it plans."""
    reference = seeing_model(tmp_path, family)
    model = load_on("native", tmp_path, dtype="float32")
    colours = model.config.vision.image_colours
    engine = TinyEngine(slotted_runner(model, max_model_len=512, num_blocks=256), max_num_batched_tokens=48)
    asked = [scene.prompt(number, reference, max_tokens=24) for number, scene in enumerate(scenes(family))]
    again = [scene.prompt(10 + number, reference, max_tokens=24) for number, scene in enumerate(scenes(family))]
    for scene, answer, other in zip(scenes(family), engine.run(*asked), engine.run(*again), strict=True):
        assert answer.error is None and answer.tokens == other.tokens
        whole = torch.tensor([scene.tokens + answer.tokens])
        types = {"mm_token_type_ids": scene.types(whole.shape[1])} if scene.media else {}
        with torch.inference_mode():
            logits = reference(whole, **types, **scene.given(colours.mean, colours.deviation)).logits[0]
        assert logits[len(scene.tokens) - 1 : -1].argmax(-1).tolist() == answer.tokens


# As published: Qwen2-VL's had the text part's keys beside those of pictures.
QWEN2_TEXT: dict[str, Any] = dict(
    attention_dropout=0.0, hidden_act="silu", hidden_size=1536, intermediate_size=8960, max_position_embeddings=32768,
    max_window_layers=28, model_type="qwen2_vl", num_attention_heads=12, num_hidden_layers=28, num_key_value_heads=2,
    rms_norm_eps=1e-6, rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}, rope_theta=1e6,
    sliding_window=32768, tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, use_sliding_window=False,
    vision_start_token_id=151652, vision_end_token_id=151653, vision_token_id=151654, vocab_size=151936,
)  # fmt: skip
QWEN2_PATCHES = dict(in_chans=3, patch_size=14, spatial_merge_size=2, spatial_patch_size=14, temporal_patch_size=2)
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen2VLForConditionalGeneration": dict(
        vision_config=dict(depth=32, embed_dim=1280, hidden_size=1536, mlp_ratio=4, num_heads=16, **QWEN2_PATCHES)
    ),
    "Qwen2_5_VLForConditionalGeneration": dict(
        vision_config=dict(
            depth=32, fullatt_block_indexes=[7, 15, 23, 31], hidden_act="silu", hidden_size=1280, num_heads=16,
            intermediate_size=3420, out_hidden_size=1536, tokens_per_second=2, window_size=112, **QWEN2_PATCHES,
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("architecture", PUBLISHED)
def test_published_configs_are_read_and_keys_that_change_answers_are_refused(architecture, tmp_path):
    config = QWEN2_TEXT | PUBLISHED[architecture] | {"architectures": [architecture]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    read = read_config(tmp_path)
    assert read.vision.patch_size == 14 and read.vision.head_dim == 80
    assert read.ropes.ropes[0].axes == (0,) * 16 + (1,) * 24 + (2,) * 24
    assert read_config(tmp_path, sees=False).vision is None
    for wrong, named in ((dict(spatial_patch_size=16), "spatial_patch_size"), (dict(in_chans=1), "in_channels")):
        path.write_text(json.dumps(config | {"vision_config": config["vision_config"] | wrong}))
        with pytest.raises(ConfigError, match=named):
            read_config(tmp_path)
