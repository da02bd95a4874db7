"""Cells in CPU memory: what a block held comes back from its cell bit for bit, whatever the memory and the way."""

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.hand_planned import NUM_BLOCKS, chain_runner, new, step
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.arrays import BFLOAT16, FLOAT16, FLOAT32, Array
from penstock.kernels.cpu.kv_memory import KV_FORMATS
from penstock.kernels.paged import KV_DTYPES
from penstock.kernels.torch.arrays import array_of, tensor_of
from penstock.protocol.wire import column
from penstock.worker.backends.torch.staged_tier import StagedTier, _contiguous_cells, second_tier
from penstock.worker.backends.torch.tensor_cache import DeviceKVCache, KVCache
from penstock.worker.kv.kv_cache import Blocks, KVShape, NativeKVCache
from penstock.worker.kv.second_tier import HostTier, SecondTier
from penstock.worker.plan_error import PlanError

BLOCKS, CELLS = 12, 9
SHAPE = KVShape(3, 2, 16)
MEMORIES = {
    "torch float32": lambda: KVCache.allocate(SHAPE, BLOCKS, 16, FLOAT32, "cpu"),
    "torch bfloat16": lambda: KVCache.allocate(SHAPE, BLOCKS, 16, BFLOAT16, "cpu"),
    "torch, odd bytes": lambda: KVCache.allocate(KVShape(2, 1, 3), BLOCKS, 1, FLOAT16, "cpu"),
    **{kind: lambda kind=kind: NativeKVCache.allocate(SHAPE, BLOCKS, 16, kind) for kind in KV_FORMATS},
    "latents in bytes": lambda: NativeKVCache.allocate(KVShape(3, 1, 48, False), BLOCKS, 16, "int8"),
    **{f"GPU {kind}": lambda kind=kind: DeviceKVCache.allocate(SHAPE, BLOCKS, 16, kind, "cpu") for kind in KV_DTYPES},
}
CHANCE = numpy.random.default_rng(1)
NONE = numpy.empty((0, 2), numpy.int64)


def direct(kv: Blocks, num_cells: int) -> SecondTier:
    return HostTier(arrays(kv), num_cells)


def staged(kv: Blocks, num_cells: int) -> SecondTier:
    """With room for three cells in its buffer."""
    parts = list(map(tensor_of, arrays(kv)))
    return StagedTier(parts, num_cells, staging_bytes=3 * sum(part[:, 0].nbytes for part in parts))


def arrays(kv: Blocks) -> list[Array]:
    return [part if isinstance(part, numpy.ndarray) else array_of(part) for part in kv.parts]


def scrambled(kv: Blocks) -> list[Array]:
    """Fill it with random bytes; a copy of them."""
    for part in arrays(kv):
        octets = part.view(numpy.uint8)
        octets[:] = CHANCE.integers(0, 256, octets.shape, numpy.uint8)
    return contents(kv)


def contents(kv: Blocks) -> list[Array]:
    """As bytes, [layers, blocks, …]."""
    return [part.reshape(*part.shape[:2], -1).view(numpy.uint8).copy() for part in arrays(kv)]


@for_each("memory", MEMORIES)
@for_each("tier", [direct, staged])
def test_what_a_block_held_comes_back_bit_for_bit(memory, tier):
    kv = MEMORIES[memory]()
    cells, before = tier(kv, CELLS), scrambled(kv)
    saved, targets = [7, 2, 3, 11, 0, 5, 6], [1, 2, 3, 4, 9, 10, 8]
    places = [0, 1, 2, 5, 6, 8, 3]
    cells.move(numpy.array(list(zip(saved, places, strict=True))), NONE)
    overwritten = scrambled(kv)
    cells.move(NONE, numpy.array(list(zip(places, targets, strict=True))))
    untouched = [block for block in range(BLOCKS) if block not in targets]
    for old, middle, now in zip(before, overwritten, contents(kv), strict=True):
        assert numpy.array_equal(now[:, targets], old[:, saved])
        assert numpy.array_equal(now[:, untouched], middle[:, untouched])
    block_bytes = sum(part[:, 0].nbytes for part in kv.parts)
    assert sum(each.nbytes for each in cells.cells) == CELLS * block_bytes


@for_each("tier", [direct, staged])
def test_saves_come_before_loads(tier):
    kv = MEMORIES["int8"]()
    cells, before = tier(kv, CELLS), scrambled(kv)
    # Block 4 is saved before it is loaded into, and from the cell that block 5 has just filled.
    cells.move(numpy.array([[4, 0], [5, 1]]), numpy.array([[1, 4], [0, 6]]))
    for old, now in zip(before, contents(kv), strict=True):
        assert numpy.array_equal(now[:, [4, 5, 6]], old[:, [5, 5, 4]])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True))
@settings(max_examples=50)
def test_neighbours_move_in_one_copy(cells):
    runs = list(_contiguous_cells(numpy.array(cells)))
    assert [cell + more for _, cell, count in runs for more in range(count)] == cells
    assert [place + more for place, _, count in runs for more in range(count)] == list(range(len(cells)))
    ends = [cell + count for _, cell, count in runs]
    assert all(end != cell for end, (_, cell, _) in zip(ends, runs[1:], strict=False))


@pytest.mark.gpu
def test_on_a_card_a_save_waits_for_what_was_computed_and_what_is_computed_next_waits_for_it():
    kv = KVCache.allocate(KVShape(8, 8, 128), 64, 32, BFLOAT16, "cuda")
    cells = second_tier(kv.parts, 64)
    torch.cuda._sleep(100_000_000)  # so that the host is far ahead
    kv.keys.copy_(torch.arange(64, device="cuda")[:, None, None, None].expand(kv.keys.shape))
    blocks = numpy.arange(64)
    cells.move(numpy.stack((blocks, blocks[::-1]), 1), NONE)
    kv.keys.zero_()
    cells.move(NONE, numpy.stack((blocks, blocks), 1))
    assert kv.keys[0, :, 0, 0, 0].tolist() == list(range(63, -1, -1))
    assert torch.equal(kv.keys, kv.keys[:1, :, :1, :1, :1].expand(kv.keys.shape))


# --- through a plan --------------------------------------------------------------------------------------------------


def test_a_plan_saves_a_block_before_it_is_computed_into_and_loads_one_before_it_is_read():
    runner = chain_runner(num_cells=4)
    keys = runner.memory.groups[0].keys[0, :, 0, :, 0]
    step(runner, 0, [(0, 4, [1])], new=[new(0, [11, 12, 13, 14])])
    step(runner, 1, [(1, 4, [1])], new=[new(1, [21, 22, 23, 24])], freed=column([0]), saves=column([1, 2]))
    assert keys[1].tolist() == [21, 22, 23, 24]
    step(runner, 2, [(0, 1, [5, 6])], new=[new(0, [11, 12, 13, 14, 15], num_computed=4)], loads=column([2, 5]))
    assert keys[5].tolist() == [11, 12, 13, 14] and keys[6, 0] == 15


@for_each(
    "moves",
    [{"saves": [NUM_BLOCKS, 0]}, {"saves": [0, 4]}, {"saves": [-1, 0]}, {"loads": [4, 0]}, {"loads": [0, NUM_BLOCKS]}],
)
def test_a_plan_that_names_what_is_not_there_is_refused(moves):
    with pytest.raises(PlanError, match=f"The plan {next(iter(moves))}"):
        step(chain_runner(num_cells=4), 0, [], **{name: column(pairs) for name, pairs in moves.items()})
    with pytest.raises(PlanError, match=r"with \d+ to take from and 0 to fill"):
        step(chain_runner(), 0, [], saves=column([0, 0]))
