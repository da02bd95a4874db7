"""The device that a rank computes on: its choice, its capabilities, and copies between it and the host.

A row of `_KINDS` holds the differences between a CPU and a GPU that don't depend on kernels; backends handle the rest.
"""

from dataclasses import dataclass
from functools import cache

import numpy
import torch
from torch import Tensor

from ..protocol.errors import ConfigError
from ..protocol.options.config import EngineConfig


@dataclass(frozen=True)
class DeviceKind:
    kernels: str  # the preferred ones: native or Triton's
    collectives: str  # torch.distributed's backend for sums and gathers
    is_asynchronous: bool  # it computes in parallel with the host, which waits for its results
    has_cheap_order: bool  # summing in the order of the ranks costs nothing


_KINDS = {
    "cpu": DeviceKind("native", "gloo", is_asynchronous=False, has_cheap_order=True),
    "cuda": DeviceKind("triton", "nccl", is_asynchronous=True, has_cheap_order=False),
}


def kind_of(device: torch.device) -> DeviceKind:
    return _KINDS[device.type]


def chosen_device(config: EngineConfig, rank: int) -> torch.device:
    wanted = config.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError(
            "device='cuda', and torch finds no CUDA device here. Use device='cpu', or check the driver and that "
            "this torch is a CUDA build."
        )
    cards = _cards(config)
    if rank >= len(cards) or max(cards) >= torch.cuda.device_count():
        raise ConfigError(
            f"tensor_parallel_size={config.tensor_parallel_size} needs a card for each rank; of the "
            f"{torch.cuda.device_count()} here, {cards} may be used. Use a smaller size or name other devices."
        )
    device = torch.device("cuda", cards[rank])
    torch.cuda.set_device(device)
    return device


def card_names(config: EngineConfig) -> list[str]:
    """The UUID of every rank's GPU, which is the same in every process."""
    cards = _cards(config)[: config.tensor_parallel_size]
    return [str(torch.cuda.get_device_properties(card).uuid) for card in cards]


def _cards(config: EngineConfig) -> list[int]:
    return config.devices or list(range(torch.cuda.device_count()))


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with open("/proc/cpuinfo") as lines:
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(names, "CPU")


def on_device(array: numpy.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor: shared memory on a CPU, else a copy that the host does not wait for."""
    tensor = torch.from_numpy(array)
    return pinned(tensor).to(device, non_blocking=True) if kind_of(device).is_asynchronous else tensor


def pinned(tensor: Tensor) -> Tensor:
    """The tensor in pinned memory: copies from other memory may wait for earlier work of the GPU."""
    return tensor.pin_memory() if torch.cuda.is_available() else tensor


class HostCopy:
    """A tensor's copy on the host, made during the next step; on a CPU it is the tensor itself."""

    def __init__(self, tensor: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        self._tensor = tensor
        if kind_of(tensor.device).is_asynchronous:
            self._copy_beside(tensor)

    def _copy_beside(self, tensor: Tensor) -> None:
        side_stream = _side_stream(tensor.device)
        side_stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(side_stream):
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._tensor.copy_(tensor, non_blocking=True)
            self._arrived = torch.cuda.Event(blocking=True)  # the waiting thread sleeps
            self._arrived.record(side_stream)
        # Its memory isn't reused before the copy is done.
        tensor.record_stream(side_stream)

    def numpy(self) -> numpy.ndarray:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensor.numpy()


def wait_for_host_copies(device: torch.device) -> None:
    """Make later launches, which may overwrite tensors, wait until pending copies to the host have read them."""
    if kind_of(device).is_asynchronous:
        torch.cuda.current_stream(device).wait_stream(_side_stream(device))


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
