"""Lets a model draft for a runner's rows, as a tree's workers do."""

from functools import partial
from pathlib import Path

from builders.backends import load_on
from builders.runner_harness import SlottedRunner, TinyEngine, engine_of, prompt

from penstock.engine.admission.limits import DraftLimits
from penstock.protocol.messages import Prompt
from penstock.worker.drafting.drafter import Drafter
from penstock.worker.drafting.drafting import Drafting
from penstock.worker.drafting.models.draft_model import DraftModel
from penstock.worker.drafting.proposer import Guess, Look
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.draft_heads import draft_heads_of, with_draft_heads
from penstock.worker.start.draft_model import draft_model_of, with_draft_model
from penstock.worker.start.load import opened_again
from penstock.worker.start.model import Model


def with_draft(model: Model, folder: Path, **options) -> Model:
    """The model with that of a folder to draft for it, loaded with these options on the same backend."""
    backend = "native" if model.backend.library is not None else "invariant"
    return with_draft_model(model, folder, 0, lambda found: load_on(backend, found, **options))


def with_heads(model: Model, folder: Path) -> Model:
    """The model with its own heads to draft for it."""
    return with_draft_heads(model, folder, partial(opened_again, folder, model, Parallel()))


def draft_by_model(runner: SlottedRunner, most: int | None = None) -> DraftModel:
    """Draft by the model's draft model or heads alone, and check all that these say."""
    model = runner.model
    drafts = (draft_heads_of if model.reads_states else draft_model_of)(
        model.draft, model.config.num_layers, runner, most
    )
    drafter = Drafter([drafts], always=drafts.name)
    runner.drafting = Drafting(runner.table, Parallel(), drafter, lambda drafts: None, drafts)
    return drafts


def drafting(model: Model, most: int | None, **room) -> tuple[TinyEngine, list[tuple[Look, Guess]]]:
    """An engine whose model's heads draft, and each guess that they make from now on."""
    engine = engine_of(model, draft_limits=DraftLimits(each=9, all=64), num_states=300, **room)
    heads, made = draft_by_model(engine.runner, most), []
    guess = heads.guess

    def noted(looks: list[Look]) -> list[Guess]:
        guesses = guess(looks)
        made.extend((look._replace(tokens=look.tokens.copy()), each) for look, each in zip(looks, guesses))
        return guesses

    heads.guess = noted
    return engine, made


def requests(first_id: int = 0) -> list[Prompt]:
    """Greedy and sampled, with log-probabilities, every second one with the same beginning; one of a single token."""
    common, asked = [(7 * place) % 290 + 5 for place in range(40)], []
    for number in range(9):
        own = [(13 * number + 5 * place) % 280 + 3 for place in range(1 + 7 * number % 40)]
        token_ids = common[: 5 * number] + own if number % 2 else own
        params = {"temperature": number % 3 / 2, "logprobs": 2, "n": 1 + (number == 5)}
        asked.append(prompt(first_id + number, token_ids, seed=number, max_tokens=14, **params))
    return asked


# Blocks are scarce, taken away, or in CPU memory, and chunks are short.
FOR_HEADS = (
    {}, {"num_blocks": 12, "max_num_batched_tokens": 40}, {"max_num_batched_tokens": 13},
    {"num_blocks": 14, "num_cells": 200, "max_num_batched_tokens": 40},
)  # fmt: skip
