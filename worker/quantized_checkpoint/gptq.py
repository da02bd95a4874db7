"""The layout of GPTQ's tools: words of inputs, one column per output.

  qweight  int32 [in × bits / 32, out]        qzeros  int32 [groups, out × bits / 32]
  scales   float [groups, out]                g_idx   int32 [in]: the group of each input

In the first version of the format a zero is stored less 1. With activation order (`desc_act`) the groups are spread
over the inputs; values are then put into the order of their groups. Knows nothing of other layouts.
"""

import torch
from torch import Tensor

from ...kernels.quantized_part import QuantizedPart
from ...protocol.errors import ConfigError
from ..models.quantization import Quantization
from .module import Module, Share, bits_of, check_outputs, checked_groups, unpacked_span


def read_gptq(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    return _read(module, share, quantization, zero_offset=1)


def read_gptq_v2(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    return _read(module, share, quantization, zero_offset=0)


def _read(module: Module, share: Share, quantization: Quantization, zero_offset: int) -> QuantizedPart:
    check_outputs(module.shape("qweight")[1], share, module)
    bits = bits_of(module.shape("qweight")[0], share.in_features, module)
    group_size = checked_groups(module.shape("scales")[0], share.in_features, quantization.group_size, module)
    order = group_order(module, "g_idx", share, group_size)
    groups = share.groups(group_size, module)
    values = unpacked_span(lambda words: module.tensor("qweight", words, share.outputs).t(), share.inputs, bits)
    zeros = unpacked_span(lambda words: module.tensor("qzeros", groups, words), share.outputs, bits).t()
    scales = module.tensor("scales", groups, share.outputs).t()
    if order is not None:
        values = values[:, order.long()]
    # A stored zero of the largest value is 0 - 1.
    zeros = (zeros + zero_offset) & (2**bits - 1)
    return QuantizedPart.of(bits, values, scales, zeros, group_size, order)


def group_order(module: Module, name: str, share: Share, group_size: int) -> Tensor | None:
    """The inputs in the order of their groups; None where that is their own order."""
    if not module.has(name):
        return None
    group_of = module.tensor(name).long()
    in_turn = torch.arange(share.in_features) // group_size
    # compressed-tensors writes -1 where it keeps no order.
    if torch.equal(group_of, in_turn) or bool((group_of < 0).all()):
        return None
    order = torch.argsort(group_of, stable=True)
    if not torch.equal(group_of[order], in_turn):
        raise ConfigError(
            f"{module.name}.{name} does not give every group {group_size} of the {share.in_features:,} inputs. "
            "The checkpoint is damaged or made by a tool that is not known here."
        )
    if not share.has_all_inputs:
        raise ConfigError(
            f"{module.name} is quantized in the order of activations, so its inputs can't be divided among ranks. "
            "Use tensor_parallel_size=1, or a checkpoint made with desc_act=False."
        )
    return order.to(torch.int32)
