"""Loads the model that drafts for another one, and lets it compute its own steps in the tree's memory.

Rank 0 has it as a whole, whatever the number of ranks. The others know its groups of layers, which the plans name.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...protocol.errors import ConfigError
from ...protocol.messages import MaskFrame
from ...protocol.processes.trace import Trace
from ..description.config import ModelConfig, read_config
from ..description.groups import groups_of
from ..drafting.models.draft_model import DraftModel, Following
from ..kv.model_memory import ModelMemory
from ..plan_error import PlanError
from ..ranks.parallel import Parallel
from ..runner import Runner
from ..steps.slots import SlotTable
from .model import Model


def with_draft_model(model: Model, folder: Path, rank: int, load: Callable[[Path], Model]) -> Model:
    """The model with one that drafts for it; `load` reads that as a whole."""
    config = read_config(folder, sees=False)
    _check(model, config, folder)
    draft = load(folder) if rank == 0 else None
    if draft is not None and type(draft.backend) is not type(model.backend):
        raise ConfigError(
            f"The draft model {folder.name} can't draft here: {draft.backend.missing or draft.backend.kernels}. "
            "Use another one."
        )
    return replace(model, draft_config=config, draft=draft)


def _check(model: Model, config: ModelConfig, folder: Path) -> None:
    """Refuse a model whose memory can't follow another's."""
    if any(state is not None for state in config.states):
        raise ConfigError(
            f"The draft model {folder.name} ({config.family.name}) keeps states, which can't be set back to where its "
            "drafts went wrong. Use one with attention in all layers."
        )
    if model.backend.device.kind != "cpu":
        raise ConfigError(
            f"A draft model runs on CPUs only so far, and this tree is on {model.backend.device}. Leave out "
            "speculative_config, or use a method without a model."
        )


def following(config: ModelConfig, num_layers: int, runner: Runner, most: int | None) -> tuple[Following, ModelMemory]:
    """Let the model that drafts follow a runner's model of `num_layers`; its part of the runner's memory."""
    followed, memory = runner.table, runner.memory.after(num_layers)
    numbers = sorted({runner.memory.places[layer][0] for layer in range(num_layers, len(runner.memory.places))})
    table = SlotTable(
        num_slots=len(followed.is_taken),
        max_model_len=followed.max_model_len,
        num_blocks=[group.num_blocks for group in memory.groups],
        block_size=followed.block_size,
        vocab_size=config.vocab_size,
        device=followed.device,
        groups=groups_of(config, config.max_position, gives_back=False),
    )
    return Following(table, numbers, followed, config.max_position, most), memory


def draft_model_of(draft: Model, num_layers: int, runner: Runner, most: int | None) -> DraftModel:
    """Let it draft for the sequences of the other model's runner, up to `most` tokens a step; that model has
    `num_layers`."""
    own, memory = following(draft.config, num_layers, runner, most)
    ranks, trace = Parallel(), Trace(None, "")
    steps = Runner(
        draft.forward_pass,
        memory,
        own.table,
        ranks,
        trace=trace,
        sampling=draft.backend.sampling,
        fast_decode=draft.fast_decode(memory, own.table, ranks, trace),
        batch=draft.backend.batch,
        sample=draft.sample,
    )
    return DraftModel(lambda plan: steps.step(plan, no_mask), own)


def no_mask(step: int) -> MaskFrame:
    raise PlanError("No row of a draft model is masked.")
