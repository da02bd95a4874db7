"""Compiles kernels for GPUs that are not here, and reads what they take of a multiprocessor.

Every kernel's file has `examples()`, the shapes of arguments that it is meant for; a test compiles each for each target
and bounds registers, spills and shared memory. Needs triton, and no GPU.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import modules

TARGETS = (80, 89, 90, 100)
TENSOR_MEMORY = 512  # columns of a multiprocessor, from 100 on


@dataclass(frozen=True)
class Example:
    """One way in which a kernel is launched."""

    name: str
    kernel: Any  # of @triton.jit
    types: Mapping[str, str]  # of the arguments that are no constants: "*bf16", "*i32", "i32", "fp32"
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    # Arguments whose value (or address) is a multiple of 16, which the compiler may count on.
    aligned: tuple[str, ...] = ()
    targets: tuple[int, ...] = TARGETS  # for which it is launched like that


class Resources(NamedTuple):
    """What one program takes of a multiprocessor."""

    registers: int  # of a thread
    spilled: int  # bytes of a thread that did not fit into them
    shared: int  # bytes of shared memory

    def programs(self, num_warps: int) -> int:
        """How many of so many warps a Hopper's multiprocessor has at a time."""
        by_registers = 65_536 // (max(self.registers, 1) + -self.registers % 8) // (32 * num_warps)
        return min(32, 64 // num_warps, by_registers, (228 << 10) // (self.shared + 1024))


def all_examples(target: int) -> Iterator[Example]:
    """The examples of every file in this folder and below that has some for this target."""
    for module in sorted(modules(), key=lambda each: each.__name__):
        examples = getattr(module, "examples", lambda: ())()
        yield from (example for example in examples if target in example.targets)


def compiled(example: Example, target: int) -> Resources:
    """Compile for the compute capability `target` (× 10); raises what the compiler raises."""
    kernel = code(example, target)
    # More would compile to a trap, and be refused only by the launch.
    if kernel.metadata.tmem_size > TENSOR_MEMORY:
        raise RuntimeError(f"{example.name} takes {kernel.metadata.tmem_size} columns of tensor memory.")
    return resources(kernel, target)


def resources(kernel: Any, target: int) -> Resources:
    """Of a kernel that triton has compiled."""
    return Resources(*_registers(kernel.asm["cubin"], target), kernel.metadata.shared)


def code(example: Example, target: int) -> Any:
    """A kernel as triton compiles it: `asm` in several languages, and `metadata`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = example.kernel.arg_names
    signature = {name: example.types.get(name, "constexpr") for name in names}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in example.aligned}
    constants = {(names.index(name),): value for name, value in example.constants.items()}
    source = ASTSource(example.kernel, signature, constants, attributes)
    options = {"num_warps": example.num_warps, "num_stages": example.num_stages}
    return triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)


def _registers(cubin: bytes, target: int) -> tuple[int, int]:
    """Read from the machine code by the disassembler that comes with triton."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = knobs.nvidia.cuobjdump.path
        told = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    if found is None:
        raise RuntimeError(f"{tool} says nothing of registers: {told!r}")
    return int(found[1]), int(found[2])
