"""Captures what a function launches on a GPU as a graph, replayed by one call. On a CPU the function is called again.

Graphs that share a memory pool are never replayed at once: the output of one is gone with the next replay of any.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

_NUMBERS = {torch.float32: "<f4", torch.int64: "<i8"}  # that are captured, as numpy describes them

Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]


def new_capture() -> Capture:
    """Captures with a memory pool of their own, which is freed with the last of them."""
    return _CudaGraphCapture(torch.cuda.graph_pool_handle()) if torch.cuda.is_available() else _called_again


def _called_again(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return run


@dataclass(frozen=True)
class _CudaGraphCapture:
    pool: Any

    def __call__(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """`run` computes a tensor from tensors at fixed addresses; each replay gives it anew, at one place.

        It is run once before, so that what it compiles, measures and allocates lazily is there.
        """
        beside = _stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            run()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        # Other threads (that load an adapter, that wait for results) may go on meanwhile.
        with torch.cuda.graph(graph, pool=self.pool, stream=beside, capture_error_mode="thread_local"):
            held = run()
        made = borrowed(held)
        del held

        def replay() -> Tensor:
            graph.replay()
            return made

        return replay


@dataclass(frozen=True)
class _CudaArray:
    __cuda_array_interface__: dict[str, Any]


def borrowed(tensor: Tensor) -> Tensor:
    """The same numbers in memory that is not held: the pool may give it to the next capture."""
    number = _NUMBERS[tensor.dtype]
    described = {"shape": tuple(tensor.shape), "typestr": number, "data": (tensor.data_ptr(), False), "version": 3}
    return torch.as_tensor(_CudaArray(described), device=tensor.device)


@cache
def _stream() -> torch.cuda.Stream:
    """One for all captures: libraries keep memory of their own for each stream."""
    return torch.cuda.Stream()
