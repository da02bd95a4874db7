"""Groups in activation order (`desc_act`): inputs that share a scale are listed instead of adjacent.

Values are sorted by group. A rank with some of the inputs has a part of each group, padded with values that contribute
nothing.
"""

import numpy

from ....kernels.arrays import Array
from ....kernels.stored.quantized import QuantizedPart
from ....protocol.errors import ConfigError
from .module import Module, Share

_CHUNK = 32  # fewest values that share a scale, if it divides the group


def group_of_inputs(module: Module, name: str, share: Share, group_size: int) -> Array | None:
    """[inputs]: the group of each; None if groups are adjacent inputs."""
    if not module.has(name):
        return None
    group_of = module.tensor(name)
    in_turn = numpy.arange(share.in_features) // group_size
    # compressed-tensors writes -1 for no order.
    if numpy.array_equal(group_of, in_turn) or (group_of < 0).all():
        return None
    if not numpy.array_equal(numpy.sort(group_of), in_turn):
        raise ConfigError(
            f"{module.name}.{name} does not give every group {group_size} of the {share.in_features:,} inputs. "
            "The checkpoint is damaged or made by a tool that is not known here."
        )
    return group_of


def ordered_part(
    bits: int, values: Array, scales: Array, zeros: Array | None, group_of: Array, share: Share, group_size: int
) -> QuantizedPart:
    """Sort this rank's stored values [outputs, inputs], unsigned, with the scales and zeros of all groups."""
    own = group_of[slice(*share.inputs)]
    order = numpy.argsort(own, kind="stable").astype(numpy.int32)
    if share.has_all_inputs:
        return QuantizedPart.of(bits, values[:, order], scales, zeros, group_size, order)
    chunk = _CHUNK if group_size % _CHUNK == 0 else group_size
    counts = numpy.bincount(own, minlength=scales.shape[1])
    num_chunks = (counts + chunk - 1) // chunk
    group_of_chunk = numpy.repeat(numpy.arange(len(counts)), num_chunks)
    group_of_place = numpy.repeat(group_of_chunk, chunk)
    # Each group begins at a chunk; its offset grows by the padding of the groups before.
    added = (num_chunks * chunk - counts).cumsum(0) - (num_chunks * chunk - counts)
    slots = numpy.arange(len(own)) + added[own[order]]
    # A group is padded with its zero, which contributes nothing for any input.
    all_zeros = zeros if zeros is not None else numpy.full(scales.shape, 2 ** (bits - 1), numpy.uint8)
    filled = all_zeros[:, group_of_place]
    filled[:, slots] = values[:, order]
    met = numpy.zeros(len(group_of_place), numpy.int32)
    met[slots] = order
    return QuantizedPart.of(
        bits,
        filled,
        scales[:, group_of_chunk],
        None if zeros is None else zeros[:, group_of_chunk],
        chunk,
        met,
    )
