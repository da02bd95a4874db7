"""A card that is not there: kernels are launched by Triton's own launch path, as far as the compiler.

Tensors lie on the CPU, or nowhere (`meta`), and a launch computes nothing; but what a card would have compiled for it
is counted, and can be compiled to machine code, whose registers and shared memory are read. For a process of its own,
which plugs the card in before it imports any kernel. Knows no kernel by name.
"""

import math
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from penstock.kernels import triton as kernels
from penstock.kernels.registry import OPS
from penstock.kernels.triton.launch import tuning

TENSOR_MEMORY = 512  # columns of a multiprocessor, from compute capability 10.0 on
MOST_REGISTERS = 255  # of a thread
# Bytes that a compiler may put on the stack where registers are left over, so that more programs fit: what was computed
# before a loop and is needed behind it, as machine code shows.
SMALL_STACK = 48


class Resources(NamedTuple):
    """What one program takes of a multiprocessor."""

    registers: int  # of a thread
    spilled: int  # bytes of a thread that did not fit into them
    shared: int  # bytes of shared memory
    warps: int
    ahead: int  # bytes on their way from memory while those before them are computed

    @property
    def programs(self) -> int:
        """How many a Hopper's multiprocessor has at a time."""
        by_registers = 65_536 // (max(self.registers, 1) + -self.registers % 8) // (32 * self.warps)
        return min(32, 64 // self.warps, by_registers, (228 << 10) // (self.shared + 1024))


class Launched(NamedTuple):
    """What Triton's compiler is given for a launch."""

    target: GPUTarget
    kernel: JITFunction
    signature: dict[str, str]
    constants: dict[Any, Any]
    options: Any
    attributes: dict[Any, Any]

    def code(self) -> Any:
        """The kernel as Triton compiles it: `asm` in several languages, and `metadata`."""
        source = self.kernel.ASTSource(self.kernel, self.signature, self.constants, self.attributes)
        return triton.compile(source, target=self.target, options=vars(self.options))

    def taken(self) -> Resources:
        """By one program of the machine code; raises what the compiler raises."""
        made = self.code()
        # More would compile to a trap, and be refused only by the launch.
        if made.metadata.tmem_size > TENSOR_MEMORY:
            raise RuntimeError(f"{self.kernel.__name__} takes {made.metadata.tmem_size} columns of tensor memory.")
        registers, stack = _registers(made.asm["cubin"])
        spilled = 0 if registers < MOST_REGISTERS and stack <= SMALL_STACK else stack
        return Resources(registers, spilled, made.metadata.shared, self.options.num_warps, _ahead(made.asm["ttgir"]))


def _ahead(code: str) -> int:
    """Bytes of a loop's buffers that are being filled while one of them is read."""
    total = 0
    for count, shape, bits in re.findall(r"local_alloc : \(\) -> !ttg\.memdesc<(\d+)x([\dx]+)x[a-z]+(\d+),", code):
        total += (int(count) - 1) * math.prod(map(int, shape.split("x"))) * int(bits) // 8
    return total


def _registers(cubin: bytes) -> tuple[int, int]:
    """Read from the machine code by the disassembler that comes with triton."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = knobs.nvidia.cuobjdump.path
        told = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    if found is None:
        raise RuntimeError(f"{tool} says nothing of registers: {told!r}")
    return int(found[1]), int(found[2])


@dataclass
class Card:
    capability: int = 90  # × 10
    compiled: list[str] = field(default_factory=list)  # kernels, each with what it was compiled for
    num_launches: int = 0
    launched: dict[str, Launched] = field(default_factory=dict)  # by kernel and what it was compiled for
    _caches: list[dict[str, Any]] = field(default_factory=list)  # Triton's, by kernel

    @property
    def target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def plug_in(self) -> None:
        triton.runtime.driver.set_active(
            SimpleNamespace(
                get_current_target=lambda: self.target,
                get_current_device=lambda: 0,
                get_current_stream=lambda device: 0,
            )
        )
        JITFunction._do_compile = lambda kernel, *given: self._compile(kernel, *given)
        tuning.architecture = lambda: self.capability
        tuning._milliseconds = lambda choice, launch: choice.num_stages  # somebody is the fastest
        for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
            setattr(torch.cuda, name, lambda *given: None)
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
            setattr(torch.cuda, name, lambda *given: 0)
        torch.cuda.get_device_name = lambda *given: "absent"
        list(kernels.modules())
        from penstock.kernels.triton.attention import paged

        paged.library = lambda *asked: lambda query, *rest: torch.empty_like(query)
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
        self.launched.clear()
        for kept in self._caches:
            kept.clear()

    def _compile(self, kernel: JITFunction, key: str, signature: dict[str, str], device: int, *rest: Any) -> Any:
        self.compiled.append(f"{kernel.__name__} {key}")
        self.launched[self.compiled[-1]] = Launched(self.target, kernel, signature, *rest[:3])

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
