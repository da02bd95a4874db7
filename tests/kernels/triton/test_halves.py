"""4-bit values, taken apart by the very instructions that a GPU gets: each of them, with each zero, in each format."""

from builders import interpreted  # isort: skip  before anything that imports triton

import pytest
import torch
import triton
import triton.language as tl
from builders.assembly import interprets_assembly  # noqa: F401  a fixture

from penstock.kernels.triton.interpreter import mend
from penstock.kernels.triton.products.halves import packed_halves

mend()


with interpreted.interpretation():

    @triton.jit
    def _every_byte_with_every_zero(lower, upper):
        octets, zeros = tl.arange(0, 256)[None, :].to(tl.uint8), tl.arange(0, 16)[:, None].to(tl.float32)
        octets = tl.broadcast_to(octets, (16, 256))
        places = tl.arange(0, 16)[:, None] * 256 + tl.arange(0, 256)[None, :]
        # The upper halves meet the zeros in the opposite order, so that the two can't be mistaken.
        found_lower, found_upper = packed_halves(octets, zeros, 15 - zeros, lower.dtype.element_ty)
        tl.store(lower + places, found_lower)
        tl.store(upper + places, found_upper)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_byte_is_taken_apart_exactly_with_every_zero(dtype, interprets_assembly):  # noqa: F811
    lower, upper = torch.empty(2, 16, 256, dtype=dtype).unbind()
    _every_byte_with_every_zero[(1,)](lower, upper)
    octets, zeros = torch.arange(256)[None, :], torch.arange(16)[:, None]
    assert torch.equal(lower.long(), octets % 16 - zeros)
    assert torch.equal(upper.long(), octets // 16 - (15 - zeros))
