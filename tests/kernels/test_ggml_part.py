"""Matrices in ggml's types: every number is the one that gguf's own code reads."""

import numpy as np
import pytest
import torch
from builders.cases import for_each
from torch import Tensor

from penstock.kernels.ggml_blocks import TYPES
from penstock.kernels.ggml_part import GgmlPart

gguf = pytest.importorskip("gguf", reason="gguf is not installed")


def random_octets(type: str, rows: int, blocks: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (rows, blocks * TYPES[type].nbytes), dtype=torch.uint8, generator=generator)


def expected(part: GgmlPart) -> Tensor:
    with np.errstate(all="ignore"):  # any bytes are floats, too: infinities among them
        found = gguf.quants.dequantize(part.octets.numpy(), gguf.GGMLQuantizationType[part.type])
    return torch.from_numpy(found)


def test_there_is_a_type_for_each_that_gguf_reads_from_blocks():
    readable = {type.name for type in gguf.quants._type_traits} - {"BF16"}
    assert readable == set(TYPES)
    for name, type in TYPES.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]] == type[:2], name


@for_each("type", TYPES)
def test_any_bytes_are_the_numbers_that_gguf_reads(type):
    part = GgmlPart(type, random_octets(type, 37, 11))
    numbers = part.dequantized()
    assert numbers.shape == part.shape == (37, 11 * TYPES[type].block)
    torch.testing.assert_close(numbers, expected(part), rtol=0, atol=0, equal_nan=True)


@for_each("type", TYPES)
def test_rows_columns_and_copies_are_of_the_same_numbers(type):
    part = GgmlPart(type, random_octets(type, 9, 4))
    numbers, block = part.dequantized(), TYPES[type].block
    same = dict(rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(part.rows(2, 7).dequantized(), numbers[2:7], **same)
    torch.testing.assert_close(part.columns(block, 3 * block).dequantized(), numbers[:, block : 3 * block], **same)
    torch.testing.assert_close(part.selected(torch.tensor([5, 0, 5])).dequantized(), numbers[[5, 0, 5]], **same)
    torch.testing.assert_close(torch.cat(list(part.split(4))), numbers, **same)
    torch.testing.assert_close(part.to(torch.device("cpu"), torch.bfloat16), numbers.bfloat16(), **same)
    torch.testing.assert_close(part.transposed(), numbers.T, **same)
    assert part.nbytes == 9 * 4 * TYPES[type].nbytes


def test_a_cut_within_a_block_is_refused():
    part = GgmlPart("Q4_K", random_octets("Q4_K", 2, 2))
    with pytest.raises(ValueError, match="Inputs 0 to 128 don't lie between borders of Q4_K's blocks of 256"):
        part.columns(0, 128)
