"""Numbers in the blocks of ggml's types: by gguf-py where it quantizes them, by rules of its own for K types.

The latter are plain: a group's scale and minimum are those of its numbers, rounded. What comes out are valid blocks of
about the given numbers, as good as a test needs and worse than llama.cpp's.
"""

import gguf
import numpy
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

Floats = NDArray[numpy.float32]
Octets = NDArray[numpy.uint8]


def quantized(rows: Floats, type: str) -> bytes:
    """[…, in] as rows of blocks."""
    if type in _K_TYPES:
        blocks = _K_TYPES[type](rows.astype(numpy.float32).reshape(-1, 256))
        assert blocks.shape[1] == gguf.GGML_QUANT_SIZES[GGMLQuantizationType[type]][1]
        return blocks.tobytes()
    return gguf.quants.quantize(rows.astype(numpy.float32), GGMLQuantizationType[type]).tobytes()


def _with_minima(blocks: Floats, levels: int) -> tuple[Octets, Octets, Octets]:
    """Of 8 groups of 32 with a scale and a minimum of 6 bits: d and dmin, both packed, and the values."""
    groups = blocks.reshape(-1, 8, 32)
    least = numpy.minimum(groups.min(-1), 0)
    widths = (groups.max(-1) - least) / levels
    d, dmin = ((each.max(-1) / 63).astype(numpy.float16) for each in (widths, -least))
    scales, mins = (
        numpy.divide(each, whole[:, None], out=numpy.zeros_like(each), where=whole[:, None] > 0).round().clip(0, 63)
        for each, whole in ((widths, d.astype(numpy.float32)), (-least, dmin.astype(numpy.float32)))
    )
    factors, offsets = d[:, None] * scales, dmin[:, None] * mins
    values = (groups + offsets[..., None]) / numpy.where(factors, factors, 1)[..., None]
    heads = numpy.stack((d, dmin), -1).astype(numpy.float16).view(numpy.uint8)
    packed = _six_bits(scales.astype(numpy.uint8), mins.astype(numpy.uint8))
    return heads, packed, values.round().clip(0, levels).astype(numpy.uint8)


def _six_bits(scales: Octets, mins: Octets) -> Octets:
    """12 bytes: the first four of each in six bits, the others in four bits and the two left over of the first."""
    low = [each[:, :4] | (each[:, 4:] >> 4) << 6 for each in (scales, mins)]
    return numpy.concatenate((*low, scales[:, 4:] & 15 | (mins[:, 4:] & 15) << 4), -1)


def _pairs_of_nibbles(values: Octets) -> Octets:
    """Of 64 neighbours the first 32 in low halves, the others in high halves."""
    pairs = (values & 15).reshape(len(values), 4, 2, 32)
    return (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(len(values), 128)


def _q4_k(blocks: Floats) -> Octets:
    heads, packed, values = _with_minima(blocks, 15)
    return numpy.concatenate((heads, packed, _pairs_of_nibbles(values)), -1)


def _q5_k(blocks: Floats) -> Octets:
    heads, packed, values = _with_minima(blocks, 31)
    high = sum((values[:, group] >> 4) << group for group in range(8)).astype(numpy.uint8)
    return numpy.concatenate((heads, packed, high, _pairs_of_nibbles(values)), -1)


def _q6_k(blocks: Floats) -> Octets:
    groups = blocks.reshape(-1, 16, 16)
    largest = numpy.abs(groups).max(-1) / 31
    d = (largest.max(-1) / 127).astype(numpy.float16)
    whole = d.astype(numpy.float32)[:, None]
    scales = numpy.divide(largest, whole, out=numpy.zeros_like(largest), where=whole > 0).round().clip(-128, 127)
    factors = whole * scales
    values = (groups / numpy.where(factors, factors, 1)[..., None]).round().clip(-32, 31).astype(numpy.int8) + 32
    # Of each half, four runs of 32: the low bits of the first and third, and of the second and fourth, share bytes.
    runs = values.astype(numpy.uint8).reshape(-1, 2, 4, 32)
    low = numpy.stack([runs[:, :, run] & 15 | (runs[:, :, run + 2] & 15) << 4 for run in range(2)], 2)
    high = sum((runs[:, :, run] >> 4) << 2 * run for run in range(4)).astype(numpy.uint8)
    tail = scales.astype(numpy.int8).view(numpy.uint8), d[:, None].view(numpy.uint8)
    return numpy.concatenate((low.reshape(-1, 128), high.reshape(-1, 64), *tail), -1)


_K_TYPES = {"Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}


def q4_k_m(name: str) -> str:
    """The type of a tensor in llama.cpp's mixture of this name."""
    is_wide = name == "output.weight" or any(part in name for part in ("attn_v.", "ffn_down", "token_embd"))
    return "Q6_K" if is_wide else "Q4_K"
