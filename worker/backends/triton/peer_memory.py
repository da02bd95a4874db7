"""Memory that GPUs read and write in one another, for the all-reduces of steps with few rows.

It is torch's symmetric memory: every rank allocates the same size and learns the others' addresses. It is used if a
trial sum comes out right. Where GPUs don't see each other's memory, NCCL does every all-reduce.
"""

import logging
import time
from collections.abc import Callable
from typing import cast

import torch
import torch.distributed as dist

from ....kernels import triton
from ....kernels.operands import ROOMS, PeerMemory
from ....kernels.triton.launch.switches import PEER_MEMORY

_LOG = logging.getLogger(__name__)
_ROWS = 64  # beyond this, every rank reading all others costs more than NCCL's algorithms
_ROOM_BYTES = 1 << 20
_FLAGS_BYTES = 4096
_ROUNDS_TRIED, _SECONDS_TRIED = 3, 60  # includes compiling a kernel

Exchange = Callable[[list[int]], list[list[int]]]  # everyone's numbers, in the order of the ranks


def peer_memory(rank: int, device: torch.device, exchange: Exchange) -> PeerMemory | None:
    """The memory of a group that has joined; all ranks get it, or none does."""
    cards = [card for (card,) in exchange([device.index or 0])]
    if triton.lack() or not PEER_MEMORY.is_on:
        return None
    if 4 * _ROWS * len(cards) > _FLAGS_BYTES or not _all_see_each_other(cards):
        return None
    try:
        memory: PeerMemory | None = _shared(rank, device)
    except RuntimeError as error:
        _LOG.warning("the cards' shared memory cannot be used, so NCCL adds up everything: %s", error)
        memory = None
    # No rank signals before all have cleared the flags.
    are_all_there = all(is_there for (is_there,) in exchange([memory is not None]))
    if memory is None or not are_all_there:
        return None
    return memory if all(is_right for (is_right,) in exchange([_adds_up(memory, device)])) else None


def _shared(rank: int, device: torch.device) -> PeerMemory:
    import torch.distributed._symmetric_memory as symmetric_memory

    own = symmetric_memory.empty(_FLAGS_BYTES + ROOMS * _ROOM_BYTES, dtype=torch.uint8, device=device)
    own[:_FLAGS_BYTES].zero_()
    torch.cuda.synchronize(device)
    shared = symmetric_memory.rendezvous(own, cast(dist.ProcessGroup, dist.group.WORLD))
    _KEPT.append(own)
    flags = torch.tensor(shared.buffer_ptrs, dtype=torch.int64, device=device)
    rounds = torch.zeros(_ROWS, dtype=torch.int32, device=device)
    return PeerMemory(rank, flags + _FLAGS_BYTES, flags, rounds, _ROOM_BYTES)


def _adds_up(memory: PeerMemory, device: torch.device) -> bool:
    """Whether trial sums over all ranks come out right, round after round."""
    from ....kernels.triton.unproven.sum_of_ranks import sum_and_norm  # imports triton

    own = torch.full((_ROWS, 256), memory.rank + 1.0, dtype=torch.bfloat16, device=device)
    stream, weight = torch.zeros_like(own), torch.ones(256, dtype=torch.bfloat16, device=device)
    for _ in range(_ROUNDS_TRIED):
        sum_and_norm(own, memory, stream, weight, 1e-6)
    done, begun = torch.cuda.Event(), time.monotonic()
    done.record()
    while not done.query():
        if time.monotonic() - begun > _SECONDS_TRIED:
            raise RuntimeError(
                f"The cards see each other's memory, and a sum in it did not end within {_SECONDS_TRIED} s. "
                "deterministic=True does without."
            )
        time.sleep(0.01)
    expected = _ROUNDS_TRIED * sum(range(1, memory.size + 1))
    is_right = bool((stream == expected).all())
    if not is_right:
        _LOG.warning("sums in the cards' shared memory come out wrong, so NCCL adds up everything")
    return is_right


_KEPT: list[torch.Tensor] = []  # keeps alive the memory behind addresses


def _all_see_each_other(cards: list[int]) -> bool:
    pairs = ((one, other) for one in cards for other in cards if one != other)
    return all(torch.cuda.can_device_access_peer(one, other) for one, other in pairs)
