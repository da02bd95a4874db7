"""Matrices in ggml's types: every number is the one that gguf's own code reads."""

import numpy as np
import pytest
import torch
from builders.cases import for_each

from penstock.kernels.arrays import BFLOAT16
from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.stored.ggml_blocks import TYPES
from penstock.kernels.torch.arrays import tensor_of
from penstock.kernels.torch.parts import floats_of, pieces_of

gguf = pytest.importorskip("gguf", reason="gguf is not installed")


def test_there_is_a_type_for_each_that_gguf_reads_from_blocks():
    readable = {type.name for type in gguf.quants._type_traits} - {"BF16"}
    assert readable == set(TYPES)
    for name, type in TYPES.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]] == type[:2], name


@for_each("type", TYPES)
def test_any_bytes_are_the_numbers_that_gguf_reads_also_in_rows_and_columns(type):
    block = TYPES[type].block
    octets = np.random.default_rng(0).integers(0, 256, (37, 11 * TYPES[type].nbytes), np.uint8)
    part = GgmlPart(type, octets)
    with np.errstate(all="ignore"):  # any bytes are floats, too: infinities among them
        expected = gguf.quants.dequantize(octets, gguf.GGMLQuantizationType[type])
    numbers = part.dequantized()
    assert numbers.shape == part.shape == (37, 11 * block) and part.nbytes == 37 * 11 * TYPES[type].nbytes
    np.testing.assert_array_equal(numbers, expected, strict=True)
    np.testing.assert_array_equal(part.rows(2, 7).dequantized(), numbers[2:7])
    np.testing.assert_array_equal(part.columns(block, 3 * block).dequantized(), numbers[:, block : 3 * block])
    np.testing.assert_array_equal(part.transposed(), numbers.T)
    pieces, tensor = pieces_of(part, 4, torch.device("cpu")), tensor_of(numbers)
    torch.testing.assert_close(torch.cat(list(pieces)), tensor, rtol=0, atol=0, equal_nan=True)
    rounded = floats_of(part, BFLOAT16, torch.device("cpu"))
    torch.testing.assert_close(rounded, tensor.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_a_cut_within_a_block_is_refused():
    part = GgmlPart("Q4_K", np.zeros((2, 2 * TYPES["Q4_K"].nbytes), np.uint8))
    with pytest.raises(ValueError, match="Inputs 0 to 128 don't lie between borders of Q4_K's blocks of 256"):
        part.columns(0, 128)
