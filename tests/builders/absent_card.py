"""A Hopper card that is not there: kernels are launched on it by Triton's own launch path, as far as the compiler.

Tensors lie on the CPU and a launch computes nothing, but what a card would have compiled for it is counted. For a
process of its own, which plugs the card in before it imports any kernel. Knows no kernel by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from penstock.kernels import triton as kernels
from penstock.kernels.registry import OPS
from penstock.kernels.triton import tuning

TARGET = 90


class _Driver:
    """What a launch asks of Triton's."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", TARGET, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@dataclass
class Card:
    compiled: list[str] = field(default_factory=list)  # kernels, each with what it was compiled for
    num_launches: int = 0
    _caches: list[dict[str, Any]] = field(default_factory=list)  # Triton's, by kernel

    def plug_in(self) -> None:
        triton.runtime.driver.set_active(_Driver())
        JITFunction._do_compile = lambda kernel, *given: self._compile(kernel, *given)
        tuning.architecture = lambda: TARGET
        tuning._milliseconds = lambda choice, launch: choice.num_stages  # somebody is the fastest
        for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
            setattr(torch.cuda, name, lambda *given: None)
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
            setattr(torch.cuda, name, lambda *given: 0)
        torch.cuda.get_device_name = lambda *given: "absent"
        list(kernels.modules())
        from penstock.kernels.triton.attention import paged

        paged.library = lambda *asked: _attend_by_library
        for op in OPS.values():
            if "triton" in op.versions:
                op._chosen["cpu"] = op.versions["triton"]
        from penstock.worker.backends.triton import cuda_graph

        cuda_graph._called_again = _run_and_called_again
        # From here on: what is compiled into kernels has been read.
        kernels.lack, kernels.is_interpreted = lambda: "", lambda: True

    def forget(self) -> None:
        """All that was compiled."""
        self.compiled.clear()
        for kept in self._caches:
            kept.clear()

    def _compile(self, kernel: JITFunction, key: str, signature: dict[str, str], device: int, *rest: Any) -> Any:
        self.compiled.append(f"{kernel.__name__} {key}")

        def run(*given: Any) -> None:
            self.num_launches += 1
            if signature.get("chosen", "").startswith("*i64"):
                given[kernel.arg_names.index("chosen") - len(kernel.arg_names)].zero_()  # a token that there is

        made = SimpleNamespace(run=run, function=None, packed_metadata=None, launch_metadata=lambda *given: None)
        cache = kernel.device_caches[device][0]
        cache[key] = made
        self._caches.append(cache)
        return made


def _run_and_called_again(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """As a card runs what it captures."""
    run()
    return run


def _attend_by_library(query: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(query)
