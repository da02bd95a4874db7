"""The GPUs of a tree, and their memory, of which other processes may hold a part."""

from collections.abc import Callable

import torch

from ....protocol.options.config import EngineConfig


def visible_cards(config: EngineConfig) -> list[int]:
    return config.devices or list(range(torch.cuda.device_count()))


def card_names(config: EngineConfig) -> list[str]:
    """The UUID of every rank's GPU, which is the same in every process."""
    cards = visible_cards(config)[: config.tensor_parallel_size]
    return [str(torch.cuda.get_device_properties(card).uuid) for card in cards]


def free_and_total_bytes(device: torch.device) -> tuple[int, int]:
    """What torch keeps for later allocations counts as free."""
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
