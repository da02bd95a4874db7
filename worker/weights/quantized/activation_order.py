"""Groups in the order of activations (`desc_act`): the inputs that share a scale are listed, not neighbours.

Values are put into the order of their groups. A rank that has some of the inputs has some of each group; its groups are
filled up with values that add nothing.
"""

import torch
from torch import Tensor

from ....kernels.stored.quantized import QuantizedPart
from ....protocol.errors import ConfigError
from .module import Module, Share

_CHUNK = 32  # values that share a scale at least, where a group divides into such


def group_of_inputs(module: Module, name: str, share: Share, group_size: int) -> Tensor | None:
    """[inputs]: the group of each; None where neighbours share one, as without a list."""
    if not module.has(name):
        return None
    group_of = module.tensor(name).long()
    in_turn = torch.arange(share.in_features) // group_size
    # compressed-tensors writes -1 where it keeps no order.
    if torch.equal(group_of, in_turn) or bool((group_of < 0).all()):
        return None
    if not torch.equal(group_of.sort().values, in_turn):
        raise ConfigError(
            f"{module.name}.{name} does not give every group {group_size} of the {share.in_features:,} inputs. "
            "The checkpoint is damaged or made by a tool that is not known here."
        )
    return group_of


def ordered_part(
    bits: int, values: Tensor, scales: Tensor, zeros: Tensor | None, group_of: Tensor, share: Share, group_size: int
) -> QuantizedPart:
    """From this rank's values [outputs, inputs] as they lie, unsigned, and the scales and zeros of all groups."""
    own = group_of[slice(*share.inputs)]
    order = torch.argsort(own, stable=True)
    if share.has_all_inputs:
        return QuantizedPart.of(bits, values[:, order], scales, zeros, group_size, order.to(torch.int32))
    chunk = _CHUNK if group_size % _CHUNK == 0 else group_size
    counts = torch.bincount(own, minlength=scales.shape[1])
    num_chunks = (counts + chunk - 1) // chunk
    group_of_chunk = torch.arange(len(counts)).repeat_interleave(num_chunks)
    group_of_place = group_of_chunk.repeat_interleave(chunk)
    # Each group begins with a chunk; what is put before it grows by what fills the groups before.
    added = (num_chunks * chunk - counts).cumsum(0) - (num_chunks * chunk - counts)
    places = torch.arange(len(own)) + added[own[order]]
    # What fills a group is its zero, and adds nothing whichever input it meets.
    all_zeros = zeros if zeros is not None else torch.full(scales.shape, 2 ** (bits - 1), dtype=torch.uint8)
    filled = all_zeros[:, group_of_place].contiguous()
    filled[:, places] = values[:, order]
    met = torch.zeros(len(group_of_place), dtype=torch.int32)
    met[places] = order.to(torch.int32)
    return QuantizedPart.of(
        bits,
        filled,
        scales[:, group_of_chunk],
        None if zeros is None else zeros[:, group_of_chunk],
        chunk,
        met,
    )
