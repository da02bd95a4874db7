"""Matrices in ggml's types with random contents, whose floats are such that products are numbers of ordinary size."""

import torch

from penstock.kernels.ggml_blocks import TYPES
from penstock.kernels.ggml_part import GgmlPart

# Where a block's floats lie, in octets; the rest of a block may be anything.
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ1_S": (0,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
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
    return GgmlPart(type, octets.flatten(1))
