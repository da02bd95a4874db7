"""Chooses the GPU of each rank, and says why the cards that this process sees don't fit a tree.

Pure functions over a description of cards, which `torch/card.py` gets from torch. What `CUDA_VISIBLE_DEVICES` hides
can't be seen, so the sentences quote it and name the entry at which CUDA stopped.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.files.sizes import exact_size
from ...protocol.options.config import EngineConfig

VARIABLE = "CUDA_VISIBLE_DEVICES"
_SAME = 0.02  # cards of one kind differ by less of their memory: pages that were retired, error correction


class Card(NamedTuple):
    number: int  # as CUDA counts what is visible
    name: str
    total_bytes: int
    uuid: str

    @property
    def is_slice(self) -> bool:
        """Whether it is a part of a card (multi-instance GPU)."""
        return " MIG " in self.name

    def __str__(self) -> str:
        return f"{self.name} ({exact_size(self.total_bytes)})"


def chosen_cards(config: EngineConfig, seen: Sequence[Card], variable: str | None) -> list[Card]:
    """The card of each rank of this machine; `variable` is the value of CUDA_VISIBLE_DEVICES."""
    size, hidden = config.ranks_per_node, why_hidden(variable, len(seen))
    if not seen:
        why = hidden or "check the driver (nvidia-smi) and that this torch is a CUDA build"
        raise ConfigError(f"device='cuda', and torch finds no CUDA device here: {why}. Or use device='cpu'.")
    wanted = config.own_devices or list(range(len(seen)))
    if absent := sorted({number for number in wanted if number >= len(seen)}):
        raise ConfigError(
            f"devices={config.devices} names card {absent[0]}, and {_visible(seen)}{_beside(hidden)}. Numbers count "
            "what is visible, from 0."
        )
    if twice := sorted({number for number in wanted if wanted.count(number) > 1}):
        raise ConfigError(f"devices={config.devices} names card {twice[0]} twice, and ranks can't share a card.")
    if len(wanted) < size:
        named = f"devices={config.devices} names {len(wanted)}" if config.own_devices else _visible(seen)
        raise ConfigError(
            f"{_ranks(config)} needs {size} here, a card for each rank, and {named}{_beside(hidden)}. Use a smaller "
            "tensor_parallel_size or more cards."
        )
    chosen = [seen[number] for number in wanted[:size]]
    if size > 1 and (part := next((card for card in chosen if card.is_slice), None)) is not None:
        raise ConfigError(
            f"{_ranks(config)} can't use {part.name}: slices of cards don't reach one another's memory, and "
            f"NCCL takes two of one card for the same. Use tensor_parallel_size=1 for each slice ({VARIABLE}=MIG-… "
            "chooses it), or whole cards."
        )
    return chosen


def unequal(chosen: Sequence[Card]) -> str | None:
    """What follows if the cards of a tree differ, as a notice; None if they don't."""
    least, most = (choose(chosen, key=lambda card: card.total_bytes) for choose in (min, max))
    if len({card.name for card in chosen}) == 1 and least.total_bytes >= (1 - _SAME) * most.total_bytes:
        return None
    kinds = " and ".join(sorted({str(card) for card in chosen}))
    return (
        f"The cards of this tree differ: {kinds}. Every rank gets as many KV blocks as fit on the fullest, and a step "
        "takes as long as on the slowest. devices=… chooses others."
    )


def why_hidden(variable: str | None, num_seen: int) -> str:
    """What CUDA_VISIBLE_DEVICES does if it hides cards, as the end of a sentence; "" if it hides none.

    CUDA takes its entries in order, numbers or beginnings of UUIDs, up to the first that is no card; none if one
    repeats; and one slice at most.
    """
    if variable is None:
        return ""
    entries = [entry.strip() for entry in variable.split(",")]
    shown = f"{VARIABLE}={variable!r}"
    if not any(entries):
        return f"{shown} hides every card; unset it, or name cards (nvidia-smi -L lists them)"
    names = [_name(entry) for entry in entries]
    if twice := next((entry for entry, name in zip(entries, names, strict=True) if names.count(name) > 1), None):
        return f"{shown} names {twice} twice, and CUDA then shows no card; name each once"
    if num_seen >= len(entries):
        return ""
    if num_seen and all(name.startswith("mig-") for name in names):
        return f"{shown} names {len(entries)} slices, and CUDA shows a process the first alone"
    return (
        f"{shown} ends for CUDA at {entries[num_seen]!r}, which is the number or UUID of no card; nvidia-smi -L lists "
        "what there is"
    )


def _name(entry: str) -> str:
    """One spelling for all of a card's."""
    return str(int(entry)) if entry.isdecimal() else entry.lower()


def _ranks(config: EngineConfig) -> str:
    on = f" on nnodes={config.nnodes}" if config.nnodes > 1 else ""
    return f"tensor_parallel_size={config.tensor_parallel_size}{on}"


def _visible(seen: Sequence[Card]) -> str:
    return "1 is visible" if len(seen) == 1 else f"{len(seen)} are visible"


def _beside(hidden: str) -> str:
    return f" ({hidden})" if hidden else ""
