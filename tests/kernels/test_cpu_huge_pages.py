"""Memory that weights are carved from."""

import gc
import weakref

import pytest
import torch

from penstock.kernels.cpu.weights import huge_pages


@pytest.mark.parametrize("nbytes", [1, 63, 64, 4097, 3 << 20, 100 << 20])
def test_carved_memory_is_zero_and_aligned(nbytes: int) -> None:
    huge_pages.zeroed(1)  # so that the next begins behind something
    memory = huge_pages.zeroed(nbytes)
    assert memory.shape == (nbytes,) and memory.data_ptr() % 64 == 0
    assert not memory[:4096].any() and not memory[-4096:].any()


def test_neighbours_do_not_overlap() -> None:
    pieces = [huge_pages.zeroed(nbytes) for nbytes in (1, 100, 64, 40 << 20, 30 << 20, 7)]
    for number, piece in enumerate(pieces, start=1):
        piece.fill_(number)
    for number, piece in enumerate(pieces, start=1):
        assert (piece == number).all(), f"piece {number} was written over"


def test_a_stretch_goes_with_the_last_weight_in_it() -> None:
    first, last = huge_pages.zeroed(10), huge_pages.zeroed(10)
    stretch = weakref.ref(huge_pages._STRETCHES._memory)
    huge_pages.zeroed(huge_pages._STRETCH)  # the next stretch
    del first
    gc.collect()
    assert stretch() is not None and torch.equal(last, torch.zeros(10, dtype=torch.uint8))
    del last
    gc.collect()
    assert stretch() is None
