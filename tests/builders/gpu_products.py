"""Random weights in ggml's types and in those of GPUs, and how a product on a GPU is held against its reference."""

import torch
from builders.quantized_parts import draws
from torch import Tensor

from penstock.kernels.operands import Norm, WeightFormat
from penstock.kernels.registry import Op
from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.stored.ggml_blocks import TYPES
from penstock.kernels.stored.quantized import QuantizedPart
from penstock.kernels.torch.arrays import array_of
from penstock.kernels.torch.packed.gpu_weights import GpuWeight, pack

# Where a block's floats lie, in octets; the rest of a block may be anything.
HALVES = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S"), (0,)),
    **dict.fromkeys(("IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}


def random_part(type: str, outputs: int, inputs: int, seed: int = 0) -> GgmlPart:
    """Any codes and scales, with floats up to about a hundredth of either sign."""
    generator = torch.Generator().manual_seed(seed)
    block, nbytes, _ = TYPES[type]
    shape = outputs, inputs // block
    octets = torch.randint(0, 256, (*shape, nbytes), dtype=torch.uint8, generator=generator)
    for place in HALVES.get(type, ()):
        floats = torch.randn(*shape, 1, generator=generator) / 128
        octets[..., place : place + 2] = floats.half().view(torch.uint8)
    if type == "MXFP4":
        octets[..., 0] = torch.randint(118, 124, shape, dtype=torch.uint8, generator=generator)
    if type == "IQ1_M":  # its float is in the highest four bits of four words
        bits = (torch.rand(shape, generator=generator) / 128).half().view(torch.int16).int()
        for word in range(4):
            octets[..., 49 + 2 * word] = (
                octets[..., 49 + 2 * word] & 15 | (bits >> 4 * word & 15 << 0).to(torch.uint8) << 4
            )
    return GgmlPart(type, array_of(octets.flatten(1)))


CPU = torch.device("cpu")
# A number's allowed error, as a share of the largest number.
CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
# The things around a product: whether there is a norm, the stream, a gate.
AROUND = {"alone": (0, 0, 0), "normed": (1, 0, 0), "added": (0, 1, 0), "gated": (0, 0, 1), "normed, gated": (1, 0, 1)}
FORMATS = [*map(WeightFormat, ("fp32", "fp16", "bf16", "int8")), WeightFormat("int4", 64)]
# Rows that meet weights of these kinds, where they are not float32.
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "int4": torch.float16, "int8": torch.bfloat16}


def weight_of(outputs: int, inputs: int, form: WeightFormat) -> GpuWeight:
    return pack([draws(outputs, inputs, seed=7) / inputs**0.5], form, CPU)


def grouped(outputs: int, inputs: int, group: int, order: Tensor | None = None) -> GpuWeight:
    """As a checkpoint with zeros has it."""
    generator = torch.Generator().manual_seed(group)
    values = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8, generator=generator)
    zeros = torch.randint(0, 16, (outputs, -(-inputs // group)), dtype=torch.uint8, generator=generator)
    scales = torch.rand(zeros.shape, generator=generator).half() / 16
    known = None if order is None else array_of(order)
    part = QuantizedPart(array_of(values), array_of(scales), array_of(zeros), group, known)
    return pack([part], WeightFormat("bf16"), CPU)


def assert_agrees(op: Op, x: Tensor, weight: GpuWeight, around: str, bias: Tensor | None = None) -> None:
    has_norm, adds, is_gated = AROUND[around]
    norm = Norm(draws(x.shape[1], seed=3, dtype=x.dtype) + 1, 1e-5) if has_norm else None
    streams = [draws(len(x), weight.out_features, seed=4, dtype=x.dtype) if adds else None for _ in range(2)]
    found = op.versions["triton"](x, weight, bias, norm, streams[0], bool(is_gated))
    expected = op.reference(x, weight, bias, norm, streams[1], bool(is_gated))
    assert found.dtype == x.dtype and found.shape == expected.shape
    assert not adds or found is streams[0]
    bound = CLOSE[x.dtype] * float(expected.float().abs().max())
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=bound)
