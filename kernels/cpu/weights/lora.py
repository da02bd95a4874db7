"""Weights of low-rank adapters as the CPU kernel reads them: source/lora.cpp shows how they lie.

Memory is taken once, for the most adapters of the largest rank, and used again by whichever comes next.
"""

from collections.abc import Sequence
from ctypes import Array as Structs

import numpy

from ...arrays import Array, fresh_zeros
from ...lora import LoraConfig
from ..library import struct_of
from ..structs import LoraPart
from .packed import PANEL

QUAD, INPUTS = 4, 16  # kQuad, kInputs


class NativeLora:
    """The weights of all adapters for one product."""

    def __init__(self, in_features: int, outputs: Sequence[int], config: LoraConfig) -> None:
        """`outputs` are the numbers of outputs of the product's parts."""
        self.in_features = in_features
        self.outputs = list(outputs)
        self.config = config
        down = _rounded(config.max_rank, QUAD) * _rounded(in_features, INPUTS)
        ups = [_rounded(out_features, PANEL) * config.max_rank for out_features in outputs]
        # Never filled here, so that what no adapter uses takes no memory.
        self._downs = [fresh_zeros((config.max_adapters, down), config.dtype) for _ in outputs]
        self._ups = [fresh_zeros((config.max_adapters, up), config.dtype) for up in ups]
        self._ranks = numpy.zeros((len(self.outputs), config.max_adapters), numpy.int32)

    @property
    def untouched(self) -> tuple[Array, ...]:
        return *self._downs, *self._ups

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.untouched)

    def put(self, adapter: int, part: int, down: Array, up: Array) -> None:
        for held, packed in ((self._downs[part], _packed_down(down)), (self._ups[part], _packed_up(up))):
            with numpy.errstate(over="ignore"):  # what float16 doesn't hold is infinite
                held[adapter, : packed.size] = packed.reshape(-1)
        self._ranks[part, adapter] = down.shape[0]

    def remove(self, adapter: int) -> None:
        self._ranks[:, adapter] = 0

    def shrunk_width(self) -> int:
        """Numbers that a token is shrunk to, over all parts."""
        return len(self.outputs) * _rounded(self.config.max_rank, QUAD)

    def structures(self) -> Structs[LoraPart]:
        """One for each part; valid as long as this object lives."""
        firsts = [sum(self.outputs[:part]) for part in range(len(self.outputs))]
        return (LoraPart * len(self.outputs))(
            *(
                struct_of(LoraPart, *columns)
                for columns in zip(self._downs, self._ups, self._ranks, firsts, self.outputs, strict=True)
            )
        )


def _packed_down(down: Array) -> Array:
    rank, in_features = down.shape
    filled = numpy.pad(down, ((0, -rank % QUAD), (0, -in_features % INPUTS)))
    quads = filled.reshape(-(-rank // QUAD), QUAD, -(-in_features // INPUTS), INPUTS)
    return quads.swapaxes(1, 2)


def _packed_up(up: Array) -> Array:
    out_features, rank = up.shape
    filled = numpy.pad(up, ((0, -out_features % PANEL), (0, 0)))
    return filled.reshape(-(-out_features // PANEL), PANEL, rank).swapaxes(1, 2)


def _rounded(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
