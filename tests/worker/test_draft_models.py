"""Draft models: with another model's own weights one is always right, whatever has happened to its memory."""

import pytest
from builders.backends import load_on
from builders.cases import for_each
from builders.model_drafts import draft_by_model, with_draft
from builders.runner_harness import TinyEngine, engine_of, prompt
from builders.tiny_model import tiny_model

from penstock.engine.admission.limits import DraftLimits
from penstock.protocol.errors import ConfigError
from penstock.protocol.messages import Prompt
from penstock.worker.start.model import Model

WINDOWS = {"num_hidden_layers": 4, "sliding_window": 20}
# Blocks are scarce, taken away, or in CPU memory; chunks are short; and prompts go through a few layers a step.
ROOMS = (
    {}, {"num_blocks": 12, "max_num_batched_tokens": 40}, {"max_num_batched_tokens": 13},
    {"num_blocks": 14, "num_cells": 200, "max_num_batched_tokens": 40}, {"max_num_batched_tokens": 20, "layered": 1},
)  # fmt: skip


def requests(first_id: int = 0) -> list[Prompt]:
    """Greedy and sampled, every second one with the same beginning."""
    common = [(7 * place) % 290 + 5 for place in range(50)]
    asked = []
    for number in range(10):
        own = [(13 * number + 5 * place) % 280 + 3 for place in range(1 + 7 * number % 40)]
        token_ids = common[: 5 * number] + own if number % 2 else own
        asked.append(prompt(first_id + number, token_ids, seed=number, max_tokens=24, temperature=number % 3 / 2))
    return asked


def drafting(model: Model, **room) -> TinyEngine:
    engine = engine_of(model, draft_limits=DraftLimits(each=9, all=64), **room)
    draft_by_model(engine.runner, most=4)
    return engine


@for_each("family, given", [("qwen3", {}), ("gpt_oss", WINDOWS), ("gemma4_text", {}), ("youtu", {})])
def test_with_the_same_weights_it_is_always_right(tmp_path, family, given):
    folder = tiny_model(tmp_path / family, family, **given)
    model = with_draft(load_on("native", folder), folder)
    for room in ROOMS:
        engine = drafting(model, **room)
        for first_id in (0, 100, 200):  # later with prefixes found
            engine.run(*requests(first_id))
        counters = engine.scheduler.counters
        assert counters.accepted_tokens == counters.draft_tokens > 0, room


@for_each("vocab_size", [290, 350])
def test_a_vocabulary_of_another_size_is_no_obstacle(tmp_path, vocab_size):
    """The unused ids at its end may be more or fewer."""
    model = load_on("native", tiny_model(tmp_path / "model", "qwen3"))
    alone = engine_of(model).run(*requests())
    draft = tiny_model(tmp_path / f"draft {vocab_size}", "qwen3", vocab_size=vocab_size)
    engine = drafting(with_draft(model, draft))
    assert engine.run(*requests()) == alone
    assert engine.scheduler.counters.draft_tokens > 0


def test_a_model_with_states_is_refused_as_a_draft_model(tmp_path):
    model = load_on("native", tiny_model(tmp_path / "model", "qwen3"))
    with pytest.raises(ConfigError, match="draft model hybrid .* keeps states"):
        with_draft(model, tiny_model(tmp_path / "hybrid", "qwen3_5_text"))


def test_beyond_its_own_context_it_drafts_nothing(tmp_path):
    model = load_on("native", tiny_model(tmp_path / "model", "qwen3"))
    draft = tiny_model(tmp_path / "draft", "qwen3", max_position_embeddings=32)
    engine = drafting(with_draft(model, draft))
    [answer] = engine.run(prompt(0, range(3, 40), max_tokens=20))
    assert len(answer.tokens) == 20 and engine.scheduler.counters.draft_tokens == 0
