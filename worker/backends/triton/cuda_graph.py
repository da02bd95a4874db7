"""Captures a function's launches on a GPU as a graph, replayed by one call. On a CPU the function is called again.

Graphs that share a memory pool are never replayed at the same time: each replay invalidates the others' outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

_NUMBERS = {torch.float32: "<f4", torch.int64: "<i8"}  # captured types, by numpy's names

Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]


def new_capture() -> Capture:
    """Make a capture with its own memory pool, which is freed with its last graph."""
    return _CudaGraphCapture(torch.cuda.graph_pool_handle()) if torch.cuda.is_available() else _called_again


def _called_again(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return run


@dataclass(frozen=True)
class _CudaGraphCapture:
    pool: Any

    def __call__(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Capture `run`, which computes a tensor from tensors at fixed addresses; each replay rewrites the same tensor.
        One of 16-bit floats must not lie in the pool.

        `run` is called once before, to get its compilation, tuning and lazy allocations done.
        """
        stream = _stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads (loading an adapter, waiting for results) may continue meanwhile.
        with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"):
            held = run()
        made = borrowed(held) if held.dtype in _NUMBERS else held
        del held

        def replay() -> Tensor:
            graph.replay()
            return made

        return replay


@dataclass(frozen=True)
class _CudaArray:
    __cuda_array_interface__: dict[str, Any]


def borrowed(tensor: Tensor) -> Tensor:
    """A view that doesn't hold its memory: the pool may reuse it for the next capture."""
    number = _NUMBERS[tensor.dtype]
    described = {"shape": tuple(tensor.shape), "typestr": number, "data": (tensor.data_ptr(), False), "version": 3}
    return torch.as_tensor(_CudaArray(described), device=tensor.device)


@cache
def _stream() -> torch.cuda.Stream:
    """One stream for all captures: libraries keep separate memory for each stream."""
    return torch.cuda.Stream()
