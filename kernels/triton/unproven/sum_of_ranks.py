"""An all-reduce, its sum with the stream, and the norm of that, in one launch on every rank.

A program has a row. It puts its rank's part where all can read it, signals every rank, waits until every rank has
signalled it, and adds the parts in the order of the ranks: all get the same bits. Rounds are counted row by row, and a
part lies in one of two rooms in turn: nobody begins the round after the next before all have read this one's. All
programs of a launch have to be on the GPU at once, so rows are few.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...operands import ROOMS, PeerMemory
from ...reference.ranks import add_norm_of_ranks
from ..launch.compiled import Example
from ..rms_norm import normed
from ..rows import block_of, warps_of

_ROOMS = tl.constexpr(ROOMS)


@triton.jit
def _told(rooms, flags, row, round, rank, SIZE: tl.constexpr):
    """Tells all ranks that this one's part of the row is there, and waits for theirs."""
    tl.debug_barrier()  # all of this program's threads have stored
    for other in tl.static_range(SIZE):
        theirs = tl.load(flags + other).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(theirs + row * SIZE + rank, round, sem="release", scope="sys")
    own = tl.load(flags + rank).to(tl.pointer_type(tl.int32)) + row * SIZE
    for other in tl.static_range(SIZE):
        # Rounds may be one ahead there, never two.
        while tl.atomic_add(own + other, 0, sem="acquire", scope="sys") - round < 0:
            pass


@triton.jit(do_not_specialize=["rank"])
def _sum_and_norm(
    part, stream, weight, output, rooms, flags, rounds, rank, room_length, width, epsilon, SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = stream.dtype.element_ty
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    is_inside = columns < width
    factors = tl.load(weight + columns, mask=is_inside, other=0)
    round = tl.load(rounds + row) + 1
    own = row.to(tl.int64) * width + columns
    in_room = round % _ROOMS * room_length + own
    to = tl.load(rooms + rank).to(tl.pointer_type(TYPE))
    tl.store(to + in_room, tl.load(part + own, mask=is_inside, other=0), mask=is_inside)
    _told(rooms, flags, row, round, rank, SIZE)
    total = tl.zeros([BLOCK], tl.float32)
    for other in tl.static_range(SIZE):
        theirs = tl.load(rooms + other).to(tl.pointer_type(TYPE))
        total += tl.load(theirs + in_room, mask=is_inside, other=0, volatile=True).to(tl.float32)
    held = tl.load(stream + own, mask=is_inside, other=0).to(tl.float32)
    added = (held + total.to(TYPE).to(tl.float32)).to(TYPE)
    tl.store(stream + own, added, mask=is_inside)
    tl.store(output + own, normed(added, factors, width, epsilon), mask=is_inside)
    tl.store(rounds + row, round)


@add_norm_of_ranks.implement("triton")
def sum_and_norm(part: Tensor, peers: PeerMemory, stream: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    output, width = torch.empty_like(stream), stream.shape[1]
    block = block_of(width)
    _sum_and_norm[len(stream),](
        part.contiguous(), stream, weight, output, peers.rooms, peers.flags, peers.rounds, peers.rank,
        peers.room_bytes // part.element_size(), width, epsilon, SIZE=peers.size, BLOCK=block,
        num_warps=warps_of(block),
    )  # fmt: skip
    return output


def examples() -> Iterator[Example]:
    for width in (1024, 8192):
        types = dict.fromkeys(("part", "stream", "weight", "output"), "*bf16")
        types |= {"rooms": "*i64", "flags": "*i64", "rounds": "*i32", "rank": "i32", "room_length": "i32"}
        types |= {"width": "i32", "epsilon": "fp32"}
        block = block_of(width)
        aligned = ("part", "stream", "weight", "output", "room_length", "width")
        constants = {"SIZE": 4, "BLOCK": block}
        yield Example(f"sum of ranks of {width}", _sum_and_norm, types, constants, warps_of(block), aligned=aligned)
