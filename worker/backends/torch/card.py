"""The GPUs of a machine and of a tree, and their memory, of which other processes may hold a part."""

from collections.abc import Callable

import torch

from ....protocol.errors import ConfigError
from ....protocol.options.config import EngineConfig
from ....protocol.survey import GpuSurvey, TorchSurvey


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
    if not torch.cuda.is_available():
        if config.device == "auto":
            return None
        raise ConfigError(
            "device='cuda', and torch finds no CUDA device here. Use device='cpu', or check the driver and that "
            "this torch is a CUDA build."
        )
    cards = visible_cards(config)
    if rank >= len(cards) or max(cards) >= torch.cuda.device_count():
        raise ConfigError(
            f"tensor_parallel_size={config.tensor_parallel_size} needs a card for each rank; of the "
            f"{torch.cuda.device_count()} here, {cards} may be used. Use a smaller size or name other devices."
        )
    device = torch.device("cuda", cards[rank])
    torch.cuda.set_device(device)
    return device


def visible_cards(config: EngineConfig) -> list[int]:
    return config.own_devices or list(range(torch.cuda.device_count()))


def card_names(config: EngineConfig) -> list[str]:
    """The UUID of every rank's GPU, which is the same in every process."""
    cards = visible_cards(config)[: config.tensor_parallel_size]
    return [str(torch.cuda.get_device_properties(card).uuid) for card in cards]


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
