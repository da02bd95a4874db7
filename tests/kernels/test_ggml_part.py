"""Matrices in ggml's types: every number is the one that gguf's own code reads."""

import numpy as np
import pytest
import torch
from builders.cases import for_each

from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.stored.ggml_blocks import TYPES

gguf = pytest.importorskip("gguf", reason="gguf is not installed")


def test_there_is_a_type_for_each_that_gguf_reads_from_blocks():
    readable = {type.name for type in gguf.quants._type_traits} - {"BF16"}
    assert readable == set(TYPES)
    for name, type in TYPES.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]] == type[:2], name


@for_each("type", TYPES)
def test_any_bytes_are_the_numbers_that_gguf_reads_also_in_rows_columns_and_copies(type):
    generator, block = torch.Generator().manual_seed(0), TYPES[type].block
    part = GgmlPart(type, torch.randint(256, (37, 11 * TYPES[type].nbytes), dtype=torch.uint8, generator=generator))
    with np.errstate(all="ignore"):  # any bytes are floats, too: infinities among them
        expected = gguf.quants.dequantize(part.octets.numpy(), gguf.GGMLQuantizationType[type])
    numbers, same = part.dequantized(), dict(rtol=0, atol=0, equal_nan=True)
    assert numbers.shape == part.shape == (37, 11 * block) and part.nbytes == 37 * 11 * TYPES[type].nbytes
    torch.testing.assert_close(numbers, torch.from_numpy(expected), **same)
    torch.testing.assert_close(part.rows(2, 7).dequantized(), numbers[2:7], **same)
    torch.testing.assert_close(part.columns(block, 3 * block).dequantized(), numbers[:, block : 3 * block], **same)
    torch.testing.assert_close(part.selected(torch.tensor([5, 0, 5])).dequantized(), numbers[[5, 0, 5]], **same)
    torch.testing.assert_close(torch.cat(list(part.split(4))), numbers, **same)
    torch.testing.assert_close(part.to(torch.device("cpu"), torch.bfloat16), numbers.bfloat16(), **same)
    torch.testing.assert_close(part.transposed(), numbers.T, **same)


def test_a_cut_within_a_block_is_refused():
    part = GgmlPart("Q4_K", torch.zeros(2, 2 * TYPES["Q4_K"].nbytes, dtype=torch.uint8))
    with pytest.raises(ValueError, match="Inputs 0 to 128 don't lie between borders of Q4_K's blocks of 256"):
        part.columns(0, 128)
