"""Operations that ranks compute together on native kernels: a thread is a rank, and their memory is shared, or copied
as between machines.

A version takes all ranks' parts, as the formula does, and checks that the ranks agree on what it gives. It does so
several times with other numbers; at first the others come late, and rank 0 is slow to read. Where calls are recorded,
each rank records a product with the identity, which writes its part to where the others find it, and the operation.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import numpy
import torch
from torch import Tensor

from penstock.kernels.arrays import Array
from penstock.kernels.cpu.copied_memory import CopiedMemory
from penstock.kernels.cpu.library import load
from penstock.kernels.torch.arrays import array_of, tensor_of
from penstock.worker.ranks.host_ranks import HostRanks

from .compared_models import found_by_ranks
from .quantized_parts import pack
from .recorded_layers import OneCall

_LATE = 0.01  # seconds, in which a rank that waits for nobody is done
_SCALES = (4, 2, 1)  # of the parts in each turn; products and sums of their multiples are exact
_SUMS = 3  # of one step: two in turn never use one area, as in a model


class FarRanks(HostRanks):
    """Ranks of which each is on a machine of its own: the others' rows are copied."""

    def gathered(self, x: Array) -> list[Array]:
        return self.board.all_gather(numpy.ascontiguousarray(x))

    def gathered_at_first(self, x: Array, widest: int) -> list[Array] | None:
        found = self.gathered(numpy.pad(x, ((0, 0), (0, widest - x.shape[1]))))
        return found if self.rank == 0 else None

    def memory(self, num_areas: int, area_bytes: int) -> CopiedMemory:
        return CopiedMemory(self, num_areas, area_bytes)


def together(parts: Sequence[Tensor], method: str, kind: type[HostRanks] = HostRanks) -> Tensor:
    """The result of every rank, each of its own part."""
    total = [sum(part.shape[1] for part in parts)] if method == "all_gather" else []

    def in_turns(ranks: HostRanks) -> list[Tensor]:
        ranks.use_kernels(load())
        turn = (_broadcast if method == "broadcast" else _recorded)(ranks, parts[ranks.rank], method, *total)
        found = []
        for number, scale in enumerate(_SCALES):
            if ranks.rank > 0 and number == 0:
                sleep(_LATE)
            found.append(turn(scale))
        ranks.exchange([])  # rank 0's memory is there until all have read it
        return found

    with TemporaryDirectory() as folder:
        found = found_by_ranks(len(parts), Path(folder) / "ranks", in_turns, kind)
    if kind is FarRanks and method == "all_gather":  # only rank 0 has it
        del found[1:]
    first = found[0][0]
    assert all(torch.equal(each, first) for of_rank in found for each in of_rank), "ranks or turns have other results"
    return first


def _broadcast(ranks: HostRanks, part: Tensor, method: str) -> Callable[[int], Tensor]:
    def turn(scale: int) -> Tensor:
        found = part * scale
        ranks.broadcast(array_of(found))
        return found // scale

    return turn


def _recorded(ranks: HostRanks, part: Tensor, method: str, *arguments: int) -> Callable[[int], Tensor]:
    call = OneCall(len(part), len(part), ranks)
    x, identity = call.buffer("x", part), pack([torch.eye(part.shape[1])], "fp32")
    with call.ops.recording(call.program, call.step):
        for _ in range(_SUMS if method == "all_reduce" else 1):
            found = getattr(call.ops, method)(call.ops.linear(x, identity, None), *arguments)

    def turn(scale: int) -> Tensor:
        tensor_of(x.rows(len(part))).copy_(part * scale)
        call.program.replay()
        if ranks.rank == 0:
            sleep(_LATE)
        return tensor_of(found.rows(len(part))) / scale

    return turn


_METHODS = ("all_reduce", "all_gather", "broadcast")
# By the names of the operations whose formula they have.
OF_RANKS = {f"ranks.{method}": partial(together, method=method) for method in _METHODS}
# Of those whose memory is copied; tokens are broadcast by the ranks themselves there.
OF_FAR_RANKS = {f"ranks.{method}": partial(together, method=method, kind=FarRanks) for method in _METHODS[:2]}
