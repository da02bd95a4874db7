"""The GPUs of a machine and of a tree, and their memory, of which other processes may hold a part."""

import logging
import os
from collections.abc import Callable

import torch

from ....protocol.options.config import EngineConfig
from ....protocol.survey import GpuSurvey, TorchSurvey
from ..visible_cards import VARIABLE, Card, chosen_cards, unequal, why_hidden

_LOG = logging.getLogger(__name__)


def torch_survey(triton: str | None) -> TorchSurvey:
    """The version of torch, and the GPUs that it finds."""
    cards = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            cards.append(GpuSurvey(torch.cuda.get_device_name(number), total, free))
    return TorchSurvey(version=str(torch.__version__), cuda=torch.version.cuda, triton=triton, cards=cards)


def card_of_rank(config: EngineConfig, rank: int) -> torch.device | None:
    """The GPU that the rank computes on; None if the option `device` is "auto" and torch finds none."""
    if config.device == "auto" and not torch.cuda.is_available():
        variable = os.environ.get(VARIABLE)
        if variable not in (None, "", "-1") and (hidden := why_hidden(variable, 0)):
            _LOG.warning("Computing on the CPU: %s.", hidden)
        return None
    cards = cards_of_ranks(config)
    own = rank % config.ranks_per_node  # on this machine
    if own == 0 and (notice := unequal(cards)) is not None:
        _LOG.warning("%s", notice)
    device = torch.device("cuda", cards[own].number)
    torch.cuda.set_device(device)
    return device


def cards_of_ranks(config: EngineConfig) -> list[Card]:
    return chosen_cards(config, _seen(), os.environ.get(VARIABLE))


def _seen() -> list[Card]:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    properties = map(torch.cuda.get_device_properties, range(count))
    return [Card(number, each.name, each.total_memory, str(each.uuid)) for number, each in enumerate(properties)]


def card_names(config: EngineConfig) -> list[str]:
    """The UUID of every rank's GPU, which is the same in every process."""
    return [card.uuid for card in cards_of_ranks(config)]


def free_and_total_bytes(device: torch.device) -> tuple[int, int]:
    """The memory of the device; torch's own reserve for later allocations counts as free."""
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)


def allocated_bytes(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device)


def peak_bytes(device: torch.device, compute: Callable[[], object]) -> int:
    """The most bytes that `compute` allocates at once, its result included."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = compute()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del result
    torch.cuda.empty_cache()
    return peak
