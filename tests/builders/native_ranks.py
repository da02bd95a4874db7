"""Operations that ranks compute together on native kernels: a thread is a rank, and their memory is shared, or copied
as between machines.

A version takes all ranks' parts, as the formula does, and checks that the ranks agree on what it gives. It does so
several times with other numbers; at first the others come late, and rank 0 is slow to read. Where calls are recorded,
each rank records a product with the identity, which writes its part to where the others find it, and the operation.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from time import sleep

import numpy
import torch
from torch import Tensor

from penstock.kernels.arrays import Array
from penstock.kernels.cpu.copied_memory import CopiedMemory
from penstock.kernels.cpu.library import load
from penstock.kernels.cpu.rank_memory import RankMemory
from penstock.kernels.cpu.shared_memory import Board, SharedMemory
from penstock.kernels.torch.arrays import array_of, tensor_of

from .quantized_parts import pack
from .recorded_layers import OneCall

_BOUND = 60  # seconds that ranks wait for one another
_LATE = 0.01  # seconds, in which a rank that waits for nobody is done
_SCALES = (4, 2, 1)  # of the parts in each turn; products and sums of their multiples are exact
_SUMS = 3  # of one step: two in turn never use one area, as in a model


class Copies:
    """What a thread's rank sends the others where their memory is copied."""

    def __init__(self, rank: "ThreadRank") -> None:
        self._rank, self.rank, self.size = rank, rank.rank, rank.size

    def gathered(self, x: Array) -> list[Array]:
        return self._rank.exchange(x.copy())  # type: ignore[arg-type, return-value]  # whatever it is

    def gathered_at_first(self, x: Array, widest: int) -> list[Array] | None:
        found = self.gathered(numpy.pad(x, ((0, 0), (0, widest - x.shape[1]))))
        return found if self.rank == 0 else None


class Group:
    """Ranks that are threads, and where they leave their numbers for one another."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = Barrier(size)
        self.numbers: list[list[int]] = [[] for _ in range(size)]

    are_far = False  # from one another, each on a machine of its own

    def given(self, version: Callable[["ThreadRank", Tensor], Tensor], parts: Sequence[Tensor]) -> Tensor:
        """The result of every rank, each of its own part."""
        with ThreadPoolExecutor(self.size) as threads:
            found = list(threads.map(version, [ThreadRank(self, rank) for rank in range(self.size)], parts))
        assert all(torch.equal(each, found[0]) for each in found), "the ranks have different results"
        return found[0]


class FarGroup(Group):
    are_far = True


class ThreadRank:
    """The processes that share a model, as one of these threads sees them."""

    def __init__(self, group: Group, rank: int) -> None:
        self.group, self.rank, self.size = group, rank, group.size

    def span(self, total: int) -> tuple[int, int]:
        return self.rank * total // self.size, (self.rank + 1) * total // self.size

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        self.group.numbers[self.rank] = numbers
        self.group.barrier.wait(_BOUND)
        found = list(self.group.numbers)
        self.group.barrier.wait(_BOUND)
        return found

    def memory(self, num_areas: int, area_bytes: int) -> RankMemory:
        if self.group.are_far:
            return CopiedMemory(Copies(self), num_areas, area_bytes)
        return SharedMemory(self.rank, self.size, self.exchange, num_areas, area_bytes)

    def in_turns(self, turn: Callable[[int], Tensor]) -> Tensor:
        """A turn's result, which is the same for every scale."""
        found = []
        for number, scale in enumerate(_SCALES):
            if self.rank > 0 and number == 0:
                sleep(_LATE)
            found.append(turn(scale))
        self.exchange([])  # rank 0's memory is there until all have read it
        assert all(torch.equal(each, found[0]) for each in found), "a turn has what belongs to another"
        return found[0]


def all_reduce(parts: Sequence[Tensor], group: type[Group] = Group) -> Tensor:
    return group(len(parts)).given(lambda rank, part: _recorded(rank, part, "all_reduce"), parts)


def all_gather(parts: Sequence[Tensor], group: type[Group] = Group) -> Tensor:
    total = sum(part.shape[1] for part in parts)
    return group(len(parts)).given(lambda rank, part: _recorded(rank, part, "all_gather", total), parts)


def broadcast(parts: Sequence[Tensor]) -> Tensor:
    def told(rank: ThreadRank, part: Tensor) -> Tensor:
        board = Board(rank.rank, rank.size, rank.exchange, load().function("penstock_meet"))

        def turn(scale: int) -> Tensor:
            found = part * scale
            board.broadcast(array_of(found))
            return found // scale

        return rank.in_turns(turn)

    return Group(len(parts)).given(told, parts)


def _recorded(rank: ThreadRank, part: Tensor, method: str, *arguments: int) -> Tensor:
    call = OneCall(len(part), len(part), rank)
    x, identity = call.buffer("x", part), pack([torch.eye(part.shape[1])], "fp32")
    with call.ops.recording(call.program, call.step):
        for _ in range(_SUMS if method == "all_reduce" else 1):
            found = getattr(call.ops, method)(call.ops.linear(x, identity, None), *arguments)

    def turn(scale: int) -> Tensor:
        tensor_of(x.rows(len(part))).copy_(part * scale)
        call.program.replay()
        if rank.rank == 0:
            sleep(_LATE)
        result = tensor_of(found.rows(len(part))) / scale
        if rank.group.are_far and method == "all_gather":  # only rank 0 has it
            result = rank.exchange(result)[0]  # type: ignore[arg-type, assignment]  # whatever it is
        return result

    return rank.in_turns(turn)


# By the names of the operations whose formula they have.
OF_RANKS: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
    "ranks.all_reduce": all_reduce,
    "ranks.all_gather": all_gather,
    "ranks.broadcast": broadcast,
}
# Of those whose memory is copied; tokens are broadcast by the ranks themselves there.
OF_FAR_RANKS = {
    "ranks.all_reduce": partial(all_reduce, group=FarGroup),
    "ranks.all_gather": partial(all_gather, group=FarGroup),
}
