"""The GPUs of a machine and of a tree, and their memory, of which other processes may hold a part."""

import logging
import os
from collections.abc import Callable

import torch

from ....protocol.options.config import EngineConfig
from ....protocol.survey import VISIBLE_DEVICES, GpuSurvey, TorchSurvey
from ..visible_cards import Card, chosen_cards, unequal, why_none

_LOG = logging.getLogger(__name__)


def cpu_build() -> str:
    """The version of this torch, if it is a build that can use no GPU; "" if not."""
    return "" if torch.backends.cuda.is_built() else str(torch.__version__)


def torch_survey(triton: str | None) -> TorchSurvey:
    """The version of torch, and the GPUs that it finds."""
    found = TorchSurvey(version=str(torch.__version__), cuda=torch.version.cuda, triton=triton)
    if cpu_build():
        return found
    count, words = _number_seen()
    for number in range(count):
        free, total = torch.cuda.mem_get_info(number)
        found.cards.append(GpuSurvey(torch.cuda.get_device_name(number), total, free))
    found.lack = "" if count else why_none(os.environ.get(VISIBLE_DEVICES), words)
    return found


def card_of_rank(config: EngineConfig, rank: int) -> torch.device | None:
    """The GPU that the rank computes on; None if the option `device` is "auto" and torch finds none."""
    if config.device == "auto":
        count, words = _number_seen()
        if not count:
            why = why_none(os.environ.get(VISIBLE_DEVICES), words)
            _LOG.warning("There is a driver, but torch finds no CUDA device: computing on the CPU (%s).", why)
            return None
    cards = cards_of_ranks(config)
    own = rank % config.ranks_per_node  # on this machine
    if own == 0 and (notice := unequal(cards)) is not None:
        _LOG.warning("%s", notice)
    device = torch.device("cuda", cards[own].number)
    torch.cuda.set_device(device)
    return device


def cards_of_ranks(config: EngineConfig) -> list[Card]:
    count, words = _number_seen()
    properties = map(torch.cuda.get_device_properties, range(count))
    seen = [Card(number, each.name, each.total_memory, str(each.uuid)) for number, each in enumerate(properties)]
    return chosen_cards(config, seen, os.environ.get(VISIBLE_DEVICES), words)


def _number_seen() -> tuple[int, str]:
    """How many cards CUDA itself shows; torch's words if there are none.

    Before CUDA is initialized, torch reads CUDA_VISIBLE_DEVICES itself, and fails at numbers of thousands of digits.
    """
    try:
        torch.cuda.init()
        return torch.cuda.device_count(), ""
    except Exception as error:  # of many kinds: a driver that is missing, too old or not ready, or no device
        return 0, str(error).strip().partition("\n")[0].rstrip(".")


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
