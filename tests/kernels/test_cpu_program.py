"""Recorded calls: buffers share memory only where no later call can tell, and a replay computes what was recorded.

Also the memory that weights are carved from.
"""

import ctypes
import gc
import weakref

import pytest
import torch
from builders.native_variants import available_variants

from penstock.kernels.arrays import address
from penstock.kernels.cpu import library
from penstock.kernels.cpu.program import Arena, Buffer, Program
from penstock.kernels.cpu.structs import Add, AddRmsNorm, Quantized
from penstock.kernels.cpu.weights import huge_pages
from penstock.kernels.torch.arrays import tensor_of

WIDTH, CAPACITY = 48, 8


@pytest.fixture
def num_rows() -> ctypes.c_int32:
    return ctypes.c_int32(3)


@pytest.fixture
def program(num_rows) -> Program:
    if not available_variants():
        pytest.skip("no compiler here, or no variant for this processor")
    return Program(library.load(), CAPACITY, ctypes.addressof(num_rows))


def added(program: Program, stream: Buffer, update: Buffer) -> None:
    program.call(
        "penstock_add", Add(program.num_rows, stream.data_ptr(), update.data_ptr(), 1.0, 1.0, WIDTH, stream.data_ptr())
    )


def test_a_replay_computes_the_rows_that_the_step_has_and_no_others(program, num_rows):
    stream, update = program.buffer(WIDTH), program.buffer(WIDTH)
    added(program, stream, update)
    added(program, stream, update)
    program.seal()
    for rows in (3, 1, CAPACITY):
        num_rows.value = rows
        tensor_of(stream.rows(CAPACITY)).fill_(1)
        tensor_of(update.rows(CAPACITY)).fill_(2)
        program.replay()
        assert tensor_of(stream.rows(CAPACITY))[:, 0].tolist() == [5.0] * rows + [1.0] * (CAPACITY - rows)


def test_what_no_later_call_can_name_is_used_again(program):
    first = program.buffer(WIDTH)
    freed = first.data_ptr()
    kept = program.buffer(WIDTH)
    del first
    again, another = program.buffer(WIDTH), program.buffer(WIDTH)
    assert again.data_ptr() == freed
    assert len({again.data_ptr(), another.data_ptr(), kept.data_ptr()}) == 3


class Owner:
    pass


def test_memory_comes_back_to_an_arena_and_serves_nothing_much_smaller():
    arena = Arena()
    owners = [Owner() for _ in range(3)]
    addresses = [address(arena.lend(owner, 1 << 20)) for owner in owners]
    del owners[0]
    last = Owner()
    assert address(arena.lend(last, 1 << 20)) == addresses[0], "it was asked meanwhile"
    owners.clear()
    del last
    owner, other, small = Owner(), Owner(), Owner()
    assert arena.lend(small, 64).nbytes == 64
    found = {address(arena.lend(owner, 1 << 20)), address(arena.lend(other, 1 << 20))}
    assert found < set(addresses)


def test_whoever_writes_a_buffer_also_makes_the_integers_that_a_consumer_asks_for(program):
    stream, normed = program.buffer(WIDTH), program.buffer(WIDTH)
    weight = torch.ones(WIDTH)
    arguments = AddRmsNorm(
        program.num_rows, stream.data_ptr(), None, 1.0, weight.data_ptr(), 1e-6, WIDTH, normed.data_ptr(), Quantized()
    )
    program.call("penstock_add_rms_norm", arguments, normed, keep=weight)
    wanted = normed.quantized()
    assert ctypes.addressof(normed.quantized()) == ctypes.addressof(wanted), "asked twice, made once"
    program.seal()
    tensor_of(stream.rows(3)).copy_(torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0)))
    program.replay()
    values = (ctypes.c_int8 * (3 * wanted.width)).from_address(wanted.values)
    scales = torch.tensor((ctypes.c_float * 3).from_address(wanted.scales))
    found = torch.tensor(values).view(3, -1)[:, :WIDTH] * scales[:, None]
    torch.testing.assert_close(found, tensor_of(normed.rows(3)), atol=float(scales.max()), rtol=0)


def test_carved_memory_is_zero_aligned_and_nobody_elses() -> None:
    sizes = (1, 100, 63, 64, 4097, 40 << 20, 30 << 20, 100 << 20, 7)
    pieces = [huge_pages.zeroed(nbytes) for nbytes in sizes]
    for number, (nbytes, piece) in enumerate(zip(sizes, pieces, strict=True), start=1):
        assert piece.shape == (nbytes,) and address(piece) % 64 == 0
        assert not piece[:4096].any() and not piece[-4096:].any()
        piece.fill(number)
    for number, piece in enumerate(pieces, start=1):
        assert (piece == number).all(), f"piece {number} was written over"


def test_a_stretch_goes_with_the_last_weight_in_it() -> None:
    first, last = huge_pages.zeroed(10), huge_pages.zeroed(10)
    stretch = weakref.ref(huge_pages._STRETCHES._memory)
    huge_pages.zeroed(huge_pages._STRETCH)  # the next stretch
    del first
    gc.collect()
    assert stretch() is not None and not last.any()
    del last
    gc.collect()
    assert stretch() is None
