"""What drafts by computing: another model, EAGLE-3 heads in each published form, and a model's own heads (MTP).

They draft what their formula says, and change no answer. With the model's own weights a draft model is always right,
whatever has happened to its memory.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from builders.backends import load_on
from builders.cases import for_each
from builders.model_drafts import FOR_HEADS, draft_by_model, drafting, requests, with_draft, with_heads
from builders.runner_harness import TinyEngine, engine_of, prompt
from builders.tiny_eagle import FORMS, NUM_LAYERS, EagleFormula, EagleHeads, Form
from builders.tiny_heads import STORED, HeadFormula
from builders.tiny_model import tiny_model
from safetensors.numpy import load_file, save_file

from penstock.engine.admission.limits import DraftLimits
from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.drafting.models.draft_heads import WorthFollowing
from penstock.worker.start.eagle_heads import with_eagle_heads
from penstock.worker.start.model import Model

WINDOWS = {"num_hidden_layers": 4, "sliding_window": 20}
# Besides, prompts go through a few layers a step.
ROOMS = (*FOR_HEADS, {"max_num_batched_tokens": 20, "layered": 1})


@for_each("family, given", [("qwen3", {}), ("gpt_oss", WINDOWS), ("gemma4_text", {}), ("youtu", {})])
def test_with_the_same_weights_it_is_always_right(tmp_path, family, given):
    folder = tiny_model(tmp_path / family, family, **given)
    model = with_draft(load_on("native", folder), folder)
    for room in ROOMS:
        engine, _ = drafting(model, 4, **room)
        for first_id in (0, 100):  # then with prefixes found
            engine.run(*requests(first_id))
        counters = engine.scheduler.counters
        assert counters.accepted_tokens == counters.draft_tokens > 0, room


@for_each("vocab_size", [290, 350])
def test_a_vocabulary_of_another_size_is_no_obstacle(tmp_path, vocab_size):
    """The unused ids at its end may be more or fewer."""
    model = load_on("native", tiny_model(tmp_path / "model", "qwen3"))
    alone = engine_of(model).run(*requests())
    draft = tiny_model(tmp_path / f"draft {vocab_size}", "qwen3", vocab_size=vocab_size)
    engine, _ = drafting(with_draft(model, draft), 4)
    assert engine.run(*requests()) == alone
    assert engine.scheduler.counters.draft_tokens > 0


def test_beyond_its_own_context_it_drafts_nothing(tmp_path):
    model = load_on("native", tiny_model(tmp_path / "model", "qwen3"))
    draft = tiny_model(tmp_path / "draft", "qwen3", max_position_embeddings=32)
    engine, _ = drafting(with_draft(model, draft), 4)
    [answer] = engine.run(prompt(0, range(3, 40), max_tokens=20))
    assert len(answer.tokens) == 20 and engine.scheduler.counters.draft_tokens == 0


# --- EAGLE-3 heads ----------------------------------------------------------------------------------------------------


def check_as_alone(model: Model, with_drafts: Callable[[], Model], most: int | None = 3) -> None:
    alone = engine_of(model).run(*requests())
    for room in FOR_HEADS:
        engine, _ = drafting(with_drafts(), most, **room)
        for first_id in (0, 100):  # then with prefixes found
            assert engine.run(*requests(first_id)) == alone, room
        engine.scheduler.check()
        counters = engine.scheduler.counters
        assert 0 < counters.accepted_tokens < counters.draft_tokens


def with_formulas_heads(formula: EagleFormula) -> Model:
    return with_eagle_heads(load_on("native", formula.folder), formula.heads.folder)


def run(engine: TinyEngine) -> None:
    engine.run(*(prompt(number, range(3 + number, 20 + 4 * number), max_tokens=12) for number in range(3)))


@for_each("form", FORMS)
def test_logits_are_those_of_the_published_formula(tmp_path, form):
    """Of random weights, to which each tensor and each layer of the model that is read matters."""
    formula = EagleFormula(tmp_path / form, form)
    model = with_formulas_heads(formula)
    engine, said = engine_of(model, draft_limits=DraftLimits(each=9, all=64)), []
    heads, forward_pass = draft_by_model(engine.runner, 3), model.draft.forward_pass
    logits_of, guess = forward_pass.logits, heads.guess

    def noted(hidden, rows) -> numpy.ndarray:
        logits = logits_of(hidden, rows)
        said.append(logits[:, formula.tokens].copy())
        return logits

    def compared(looks: list) -> list:
        [look], [found] = looks, guess(looks)
        expected = formula.drafts(look.tokens.tolist(), len(found.tokens))
        assert found.tokens == [token for token, _ in expected]
        for (_, of_formula), logits in zip(expected, said, strict=True):
            numpy.testing.assert_allclose(logits[-1], of_formula, rtol=2e-4, atol=2e-4)
        said.clear()
        return [found]

    forward_pass.logits, heads.guess = noted, compared
    engine.run(prompt(0, range(3, 40), max_tokens=12))
    assert engine.scheduler.counters.draft_tokens > 9


@for_each("form", FORMS)
def test_drafts_in_chunks_and_in_company_are_those_of_the_published_formula(tmp_path, form):
    """Where model and heads agree, so that drafts are accepted, too."""
    formula = EagleFormula(tmp_path / form, form, agreeing=True)
    engine, made = drafting(with_formulas_heads(formula), 3, max_num_batched_tokens=13)
    run(engine)
    for look, guess in made:
        assert guess.tokens == [token for token, _ in formula.drafts(look.tokens.tolist(), len(guess.tokens))]
    counters = engine.scheduler.counters
    assert counters.accepted_tokens >= counters.draft_tokens / 10 > 1


@for_each("form, gives_up", [("specforge", False), ("3.1", False), ("specforge", True)])
def test_whatever_heads_draft_answers_are_as_alone(tmp_path, monkeypatch, form, gives_up):
    """Also where they give some sequences up, as they may where no number of drafts is given."""
    formula, source = EagleFormula(tmp_path, form, agreeing=True), random.Random(2)
    if gives_up:
        monkeypatch.setattr(WorthFollowing, "enter", lambda worth, slot: source.random() < 0.9)
        monkeypatch.setattr(WorthFollowing, "count", lambda worth, slot, num_accepted: source.random() < 0.9)
    model = load_on("native", formula.folder)
    check_as_alone(model, lambda: with_eagle_heads(model, formula.heads.folder), most=None if gives_up else 3)


@for_each("given, words", [
    ({"hidden_size": 96}, "reads hidden states of 96 numbers"), ({"vocab_size": 311}, "has 311 tokens"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 9, 20]}, "names the layers .*20.*, and the model has 6"),
    ({"model_type": "deepseek_v3"}, "of model_type 'deepseek_v3' are not supported"),
    ({"target_hidden_size": "64"}, "target_hidden_size must be a whole number"),
    ({"eagle_aux_hidden_state_layer_ids": 3}, "must be a list of whole numbers, and is 3"),
    ({"norm_before_residual": "false"}, "norm_before_residual must be true or false, and is 'false'"),
    ({"eagle_config": {"use_mtp_layernorm": True}}, "heads with use_mtp_layernorm=True are not supported"),
    ({"architectures": ["PeagleDraftModel"]}, "heads of the form 'PeagleDraftModel' are not supported"),
    ({"speculators_model_type": "peagle"}, "heads of the form 'peagle' are not supported"),
    ({"fc_norm": True}, "has fc_norm=True, and the heads have no fc_norm.0.weight"),
    ({"draft_vocab_size": 50}, "draft_vocab_size is 50, and its tensors have 90 tokens"),
])  # fmt: skip
def test_heads_that_do_not_fit_are_refused_with_the_reason(tmp_path, given, words):
    formula = EagleFormula(tmp_path / "".join(filter(str.isalnum, words)), "specforge")
    path = formula.heads.folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | given))
    with pytest.raises(ConfigError, match=words):
        with_formulas_heads(formula)


def test_heads_that_name_no_layers_are_refused_for_a_model_without_the_usual_ones(tmp_path):
    model = load_on("native", tiny_model(tmp_path / "model", "qwen3", num_hidden_layers=4))
    heads = EagleHeads(tmp_path / "heads", FORMS["specforge"], model.config)
    with pytest.raises(ConfigError, match=r"doesn't say which layers .*, and a model of 4 layers is too small"):
        with_eagle_heads(model, heads.folder)


def test_heads_of_an_unknown_form_are_refused(tmp_path):
    formula = EagleFormula(tmp_path / "model", "specforge")
    path = formula.heads.folder / "model.safetensors"
    tensors = load_file(path)
    without_head = {name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}
    for stored, words in (
        (tensors | {"midlayer.conv.weight": tensors["norm.weight"]}, r"no known EAGLE-3 .* \(layers.0.conv.weight\)"),
        (tensors | {"model.norm.weight": tensors["norm.weight"]}, "under two names, .*norm.weight"),
        (without_head, "a d2t of 90 tokens and no lm_head.weight"),
    ):
        save_file(stored, path)
        with pytest.raises(ConfigError, match=words):
            with_formulas_heads(formula)
    (formula.heads.folder / "config.json").write_text("null")
    with pytest.raises(ConfigError, match="config.json holds no JSON object"):
        with_formulas_heads(formula)
    with pytest.raises(ConfigError, match="has no fc.weight"):
        model = load_on("native", formula.folder)
        with_eagle_heads(model, tiny_model(tmp_path / "no heads", "llama", hidden_size=64))


@for_each("width", [32, 128])
def test_heads_of_another_width_need_an_output_head_of_their_own(tmp_path, width):
    config = read_config(tiny_model(tmp_path / "model", "qwen3", num_hidden_layers=NUM_LAYERS))
    heads = EagleHeads(tmp_path / "heads", Form(own_embedding=True), replace(config, hidden_size=width))
    path = heads.folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target_hidden_size": config.hidden_size}))
    with pytest.raises(ConfigError, match=f"the model's reads {config.hidden_size} numbers, while .* {width}"):
        with_eagle_heads(load_on("native", tmp_path / "model"), heads.folder)


# --- a model's own heads ----------------------------------------------------------------------------------------------


QUICK = "ernie4_5"


def families() -> list:
    return [pytest.param(family, marks=[pytest.mark.long] * (family != QUICK)) for family in STORED]


@pytest.mark.parametrize("family", families())
def test_drafts_of_a_models_own_heads_are_those_of_the_published_formula(tmp_path, family):
    """Computed in chunks, next to one another, and for one token more than there are heads."""
    formula = HeadFormula(tmp_path / "model", family, agreeing=True)
    engine, made = drafting(with_heads(load_on("native", formula.folder), formula.folder), 2, max_num_batched_tokens=13)
    run(engine)
    assert sum(len(guess.tokens) for _, guess in made) > 9
    for look, guess in made:
        assert guess.tokens == formula.drafts(look.tokens.tolist(), len(guess.tokens))
    assert engine.scheduler.counters.accepted_tokens > 0


@pytest.mark.parametrize("family", families())
def test_whatever_a_models_own_heads_draft_answers_are_as_alone(tmp_path, family):
    formula = HeadFormula(tmp_path / "model", family, agreeing=True)
    model = load_on("native", formula.folder)
    assert model.report.leftovers and not with_heads(model, formula.folder).report.leftovers
    check_as_alone(model, lambda: with_heads(model, formula.folder))


def test_a_checkpoint_without_heads_is_refused(tmp_path):
    folder: Path = tiny_model(tmp_path / "model", "qwen3")
    with pytest.raises(ConfigError, match="model .* has no heads for further tokens"):
        with_heads(load_on("native", folder), folder)
