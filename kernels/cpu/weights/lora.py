"""Weights of low-rank adapters as the CPU kernel reads them: source/lora.cpp shows how they lie.

Memory is taken once, for the most adapters of the largest rank, and used again by whichever comes next.
"""

from collections.abc import Sequence
from ctypes import Array

import torch
import torch.nn.functional as F
from torch import Tensor

from ...lora import LoraConfig
from ...torch.arrays import torch_dtype
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
        self._downs = [torch.empty(config.max_adapters, down, dtype=torch_dtype(config.dtype)) for _ in outputs]
        self._ups = [torch.empty(config.max_adapters, up, dtype=torch_dtype(config.dtype)) for up in ups]
        self._ranks = torch.zeros(len(self.outputs), config.max_adapters, dtype=torch.int32)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return *self._downs, *self._ups

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def put(self, adapter: int, part: int, down: Tensor, up: Tensor) -> None:
        """Take over `down` [rank, in] and `up` [out, rank] of a part; no step may use the adapter meanwhile."""
        for held, packed in ((self._downs[part], _packed_down(down)), (self._ups[part], _packed_up(up))):
            held[adapter, : packed.numel()] = packed.flatten()
        self._ranks[part, adapter] = down.shape[0]

    def remove(self, adapter: int) -> None:
        self._ranks[:, adapter] = 0

    def shrunk_width(self) -> int:
        """Numbers that a token is shrunk to, over all parts."""
        return len(self.outputs) * _rounded(self.config.max_rank, QUAD)

    def structures(self) -> Array[LoraPart]:
        """One for each part; valid as long as this object lives."""
        firsts = [sum(self.outputs[:part]) for part in range(len(self.outputs))]
        return (LoraPart * len(self.outputs))(
            *(
                struct_of(LoraPart, *columns)
                for columns in zip(self._downs, self._ups, self._ranks, firsts, self.outputs, strict=True)
            )
        )


def _packed_down(down: Tensor) -> Tensor:
    rank, in_features = down.shape
    filled = F.pad(down, (0, -in_features % INPUTS, 0, -rank % QUAD))
    return filled.unflatten(1, (-1, INPUTS)).unflatten(0, (-1, QUAD)).transpose(1, 2)


def _packed_up(up: Tensor) -> Tensor:
    filled = F.pad(up, (0, 0, 0, -up.shape[0] % PANEL))
    return filled.unflatten(0, (-1, PANEL)).transpose(1, 2)


def _rounded(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
