"""A model's own heads for further tokens (MTP): what they draft, and that it changes no answer."""

from pathlib import Path

import pytest
from builders.backends import load_on
from builders.model_drafts import FOR_HEADS, drafting, requests, with_heads
from builders.runner_harness import engine_of, prompt
from builders.tiny_heads import STORED, HeadFormula
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError

QUICK = "ernie4_5"


def families() -> list:
    return [pytest.param(family, marks=[pytest.mark.long] * (family != QUICK)) for family in STORED]


@pytest.mark.parametrize("family", families())
def test_drafts_are_those_of_the_published_formula(tmp_path, family):
    """Computed in chunks, next to one another, and for one token more than there are heads."""
    formula = HeadFormula(tmp_path / "model", family, agreeing=True)
    engine, made = drafting(with_heads(load_on("native", formula.folder), formula.folder), 2, max_num_batched_tokens=13)
    engine.run(*(prompt(number, range(3 + number, 20 + 4 * number), max_tokens=12) for number in range(3)))
    assert sum(len(guess.tokens) for _, guess in made) > 9
    for look, guess in made:
        assert guess.tokens == formula.drafts(look.tokens.tolist(), len(guess.tokens))
    assert engine.scheduler.counters.accepted_tokens > 0


@pytest.mark.parametrize("family", families())
def test_whatever_heads_draft_answers_are_as_alone(tmp_path, family):
    formula = HeadFormula(tmp_path / "model", family, agreeing=True)
    model = load_on("native", formula.folder)
    assert model.report.leftovers and not with_heads(model, formula.folder).report.leftovers
    alone = engine_of(model).run(*requests())
    for room in FOR_HEADS:
        engine, _ = drafting(with_heads(model, formula.folder), 3, **room)
        for first_id in (0, 100):  # then with prefixes found
            assert engine.run(*requests(first_id)) == alone, room
        engine.scheduler.check()
        counters = engine.scheduler.counters
        assert 0 < counters.accepted_tokens < counters.draft_tokens


def test_a_checkpoint_without_heads_is_refused(tmp_path):
    folder: Path = tiny_model(tmp_path / "model", "qwen3")
    with pytest.raises(ConfigError, match="model .* has no heads for further tokens"):
        with_heads(load_on("native", folder), folder)
