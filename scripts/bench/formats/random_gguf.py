"""Writes a GGUF file of a shape with random weights, directly in the format it is to have, tensor by tensor.

    python -m bench.formats.random_gguf qwen3-30b 8 Q4_K_M model.gguf         # its first 8 layers

Bits of the numbers are by chance and scales such that weights are about 0.02 large; routers are floats by chance, so
that tokens choose various experts. Which tensor gets which type follows llama.cpp's own `llama_model_quantize`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from ..shapes import PUBLISHED
from ..shapes.shape import CONVOLUTION, DOWN, HEAD, LATENT, VALUE, Shape, Tensor, common_keys, tensors

STANDARD_DEVIATION = 0.02


@dataclass(frozen=True)
class Block:
    """A type's block of weights, and the bytes at some offsets that are not random."""

    weights: int
    bytes: int
    fixed: dict[int, bytes]
    signs: tuple[int, ...] = ()  # where scales have their sign, in the highest bit


def half(value: float) -> bytes:
    return numpy.float16(value).tobytes()


# Numbers of b evenly spread bits have the standard deviation 2^b / √12.
_EVEN = 12**-0.5
_FOUR, _FIVE, _SIX, _EIGHT = (STANDARD_DEVIATION / (2**bits * _EVEN) for bits in (4, 5, 6, 8))
BLOCKS = {
    "Q8_0": Block(32, 34, {0: half(_EIGHT)}, (1,)),
    "Q4_0": Block(32, 18, {0: half(_FOUR)}, (1,)),
    "Q5_0": Block(32, 22, {0: half(_FIVE)}, (1,)),
    "MXFP4": Block(32, 17, {0: bytes([120])}),  # 2^(120 - 127), times 0 to ±6
    # Scales and minima of 8 × 32 weights are 32 each, in the 6 bits they have.
    "Q4_K": Block(256, 144, {0: half(_FOUR / 32), 2: half(7.5 * _FOUR / 32), 4: bytes([0xA0] * 8 + [0] * 4)}, (1, 3)),
    "Q6_K": Block(256, 210, {192: bytes([8] * 16), 208: half(_SIX / 8)}, (209,)),
}
NARROWER = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}  # where inputs don't fill blocks of 256


def of_k_quants(model: Shape, tensor: Tensor) -> str:
    if tensor.part == HEAD or (tensor.part in (VALUE, DOWN) and has_more_bits(tensor.layer, model.layers)):
        return "Q6_K"
    return "Q4_K"


def has_more_bits(layer: int, layers: int) -> bool:
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


# A file's format -> the type of each matrix.
FILES: dict[str, Callable[[Shape, Tensor], str]] = {
    "Q8_0": lambda model, tensor: "Q8_0",
    # The one exception: there the head would be Q6_K, which is much of what a token reads where layers were cut away.
    "Q4_0": lambda model, tensor: "Q4_0",
    "Q4_K_M": of_k_quants,
    "MXFP4": lambda model, tensor: "MXFP4" if len(tensor.shape) == 3 and tensor.part != LATENT else "Q8_0",
}


def type_of(model: Shape, tensor: Tensor, file: str) -> str | None:
    """The type of a matrix; vectors, routers, convolutions and biases stay floats."""
    if (
        len(tensor.shape) == 1
        or tensor.part == CONVOLUTION
        or tensor.name.endswith(".bias")
        or "ffn_gate_inp" in tensor.name
    ):
        return None
    name = FILES[file](model, tensor)
    while tensor.shape[-1] % BLOCKS[name].weights:
        name = NARROWER[name]
    return name


def num_bytes(tensor: Tensor, name: str | None) -> int:
    return tensor.weights * 4 if name is None else tensor.weights // BLOCKS[name].weights * BLOCKS[name].bytes


def active_bytes(model: Shape, file: str) -> float:
    """Bytes of such a file that one token reads."""
    return sum(one.share * num_bytes(one, type_of(model, one, file)) for one in tensors(model))


def write_random(model: Shape, file: str, path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, model.architecture)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    add[list] = writer.add_array
    for key, value in (common_keys(model) | model.keys).items():
        add[type(value)](f"{model.architecture}.{key}", value)
    writer.add_tokenizer_model("no_vocab")
    made = list(tensors(model))
    for tensor in made:
        name = type_of(model, tensor, file)
        type_number = gguf.GGMLQuantizationType[name or "F32"]
        writer.add_tensor_info(
            tensor.name, tensor.shape, numpy.dtype(numpy.float32), num_bytes(tensor, name), type_number
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    chance = numpy.random.Generator(numpy.random.SFC64(0))
    for tensor in made:
        writer.write_tensor_data(values(tensor, type_of(model, tensor, file), chance))
    writer.close()


def values(tensor: Tensor, name: str | None, chance: numpy.random.Generator) -> Any:
    if name is None:
        if "norm" in tensor.name:
            return numpy.ones(tensor.shape, numpy.float32)
        if tensor.name.endswith("ssm_a"):
            return -numpy.ones(tensor.shape, numpy.float32)  # states decay
        return STANDARD_DEVIATION * chance.standard_normal(tensor.shape, numpy.float32)
    block = BLOCKS[name]
    blocks = tensor.weights // block.weights
    made = chance.integers(0, 2**64, -(-blocks * block.bytes // 8), numpy.uint64).view(numpy.uint8)
    made = made[: blocks * block.bytes].reshape(blocks, block.bytes)
    for offset, bits in block.fixed.items():
        made[:, offset : offset + len(bits)] = numpy.frombuffer(bits, numpy.uint8)
    # Integers lie a half below 0 on average, and without these so would all weights, and all tokens choose one way.
    signs = chance.integers(0, 2, blocks, numpy.uint8) << 7
    for offset in block.signs:
        made[:, offset] |= signs
    return made


if __name__ == "__main__":
    write_random(PUBLISHED[sys.argv[1]].cut(int(sys.argv[2])), sys.argv[3], Path(sys.argv[4]))
