"""Lets a model draft for a runner's rows, as a tree's workers do."""

from functools import partial
from pathlib import Path

from builders.backends import load_on
from builders.runner_harness import SlottedRunner

from penstock.worker.drafting.drafter import Drafter
from penstock.worker.drafting.drafting import Drafting
from penstock.worker.drafting.models.draft_model import DraftModel
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
    drafts = (draft_heads_of if model.drafts_itself else draft_model_of)(
        model.draft, model.config.num_layers, runner, most
    )
    drafter = Drafter([drafts], always=drafts.name)
    runner.drafting = Drafting(runner.table, Parallel(), drafter, lambda drafts: None, drafts)
    return drafts
