"""Captures what a function launches on a GPU, to be launched again by one call. On a CPU it is called again instead.

All captures share one pool of memory, for they are never replayed at once: what one leaves is gone with the next
replay of any. Knows nothing of what is captured.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]


def captured(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """`run` computes float32 from tensors at fixed addresses; each replay gives it anew, at one place.

    It is run once before, so that what it compiles, measures and allocates lazily is there.
    """
    if not torch.cuda.is_available():
        return run
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        run()
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    # Other threads (that load an adapter, that wait for results) may go on meanwhile.
    with torch.cuda.graph(graph, pool=_pool(), capture_error_mode="thread_local"):
        made = borrowed(run())

    def replay() -> Tensor:
        graph.replay()
        return made

    return replay


@dataclass(frozen=True)
class _Place:
    __cuda_array_interface__: dict[str, Any]


def borrowed(tensor: Tensor) -> Tensor:
    """The same float32 numbers in memory that is not held: the pool may give it to the next capture."""
    described = {"shape": tuple(tensor.shape), "typestr": "<f4", "data": (tensor.data_ptr(), False), "version": 3}
    return torch.as_tensor(_Place(described), device=tensor.device)


@cache
def _pool() -> Any:
    return torch.cuda.graph_pool_handle()
