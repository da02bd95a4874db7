"""The few instructions of PTX that kernels are written in, computed in numpy, where Triton's interpreter knows none.

Registers are arrays of 32-bit words, so that one reading of the text computes many threads. Numbers are multiplied and
added in double precision, which is exact for products of 16-bit floats, and then have to fit into their format: what
would be rounded is refused.
"""

from collections.abc import Sequence
from functools import partial

import numpy
import pytest
import torch
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype

Words = numpy.ndarray


def computed(text: str, inputs: Sequence[Words], num_outputs: int) -> list[Words]:
    """The outputs $0, $1, … of an inline assembly; the inputs follow in number."""
    registers = {f"${place + num_outputs}": words for place, words in enumerate(inputs)}
    for line in filter(None, (each.strip(" {}\n") for each in text.split(";"))):
        name, _, rest = line.partition(" ")
        if name != ".reg":
            to, *given = rest.replace(" ", "").split(",")
            registers[to] = _INSTRUCTIONS[name](*(_value(each, registers) for each in given))
    return [registers[f"${place}"] for place in range(num_outputs)]


def _value(given: str, registers: dict[str, Words]) -> Words:
    return registers[given] if given in registers else numpy.uint32(int(given, 0))


def _permuted(a: Words, b: Words, selector: Words) -> Words:
    both = b.astype(numpy.uint64) << numpy.uint64(32) | a
    places = [numpy.uint64(8) * (selector >> 4 * byte & 15) for byte in range(4)]
    assert numpy.max(places) < 64, "the sign of a byte is not computed here"
    return sum((both >> place & 255) << 8 * byte for byte, place in enumerate(places)).astype(numpy.uint32)


def _multiplied(dtype: torch.dtype, a: Words, b: Words, c: Words) -> Words:
    a, b, c = (_lanes(words, dtype) for words in numpy.broadcast_arrays(a, b, c))
    exact = a * b + c
    fitting = exact.to(dtype)
    assert torch.equal(fitting.double(), exact), f"{exact[fitting.double() != exact]} would be rounded"
    return fitting.view(torch.int16).numpy().view(numpy.uint32)[..., 0]


def _lanes(words: Words, dtype: torch.dtype) -> torch.Tensor:
    halves = numpy.ascontiguousarray(words)[..., None].view(numpy.int16)
    return torch.from_numpy(halves.copy()).view(dtype).double()


_INSTRUCTIONS = {
    "mov.b32": lambda a: a,
    "shr.b32": lambda a, b: a >> b,
    "shl.b32": lambda a, b: a << b,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "prmt.b32": _permuted,
    "fma.rn.bf16x2": partial(_multiplied, torch.bfloat16),
    "fma.rn.f16x2": partial(_multiplied, torch.float16),
}


class _Outputs:
    def __init__(self, handles: list[TensorHandle]) -> None:
        self.handles = handles

    def get_result(self, place: int) -> TensorHandle:
        return self.handles[place]


def _inline(builder, text: str, constraints: str, handles, types, is_pure: bool, pack: int) -> _Outputs:
    """The numbers of a thread are `pack` neighbours, which share a register as far as they fit into one."""
    words = [numpy.ascontiguousarray(each.data).reshape(-1, pack).view(numpy.uint32) for each in handles]
    inputs = [register for each in words for register in each.T]
    found = computed(text, inputs, constraints.count("="))
    each, outputs = len(found) // len(types), []
    for place, type in enumerate(types):
        numbers = numpy.stack(found[each * place : each * (place + 1)], 1).view(_get_np_dtype(type.scalar))
        outputs.append(TensorHandle(numbers.reshape(handles[0].data.shape), type.scalar))
    return _Outputs(outputs)


@pytest.fixture
def interprets_assembly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted kernels may call `tl.inline_asm_elementwise`."""
    monkeypatch.setattr(InterpreterBuilder, "create_inline_asm", _inline)
