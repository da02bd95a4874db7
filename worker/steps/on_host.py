"""What a step has computed, on its way to the host. A GPU copies it beside the next step; whoever reads it waits."""

from functools import cache

import numpy
import torch
from torch import Tensor

from ..device import kind_of


class OnHost:
    """A tensor as the host will see it; on a CPU it is there at once, and the same memory."""

    def __init__(self, tensor: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        self._tensor = tensor
        if kind_of(tensor.device).is_asynchronous:
            self._copy_beside(tensor)

    def _copy_beside(self, tensor: Tensor) -> None:
        beside = _side_stream(tensor.device)
        beside.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(beside):
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._tensor.copy_(tensor, non_blocking=True)
            self._arrived = torch.cuda.Event(blocking=True)  # who waits for it sleeps
            self._arrived.record(beside)
        # Its memory is nobody else's before the copy is done.
        tensor.record_stream(beside)

    def numpy(self) -> numpy.ndarray:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensor.numpy()


def departed(device: torch.device) -> None:
    """What is launched from here on runs when all that was sent has been read: it may write where that lay."""
    if kind_of(device).is_asynchronous:
        torch.cuda.current_stream(device).wait_stream(_side_stream(device))


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
