"""The layout of GPTQ's tools: words of inputs, one column per output.

  qweight  int32 [in × bits / 32, out]        qzeros  int32 [groups, out × bits / 32]
  scales   float [groups, out]                g_idx   int32 [in]: the group of each input

In the first version of the format a zero is stored less 1. With activation order (`desc_act`) the groups are spread
over the inputs.
"""

from ....kernels.quantized_part import QuantizedPart
from ...description.quantization import Quantization
from .activation_order import group_of_inputs, ordered_part
from .module import Module, Share, bits_of, check_outputs, checked_groups, unpacked_span


def read_gptq(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    return _read(module, share, quantization, zero_offset=1)


def read_gptq_v2(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    return _read(module, share, quantization, zero_offset=0)


def _read(module: Module, share: Share, quantization: Quantization, zero_offset: int) -> QuantizedPart:
    check_outputs(module.shape("qweight")[1], share, module)
    bits = bits_of(module.shape("qweight")[0], share.in_features, module)
    num_groups = module.shape("scales")[0]
    group_size = checked_groups(num_groups, share.in_features, quantization.group_size_of(module.name), module)
    group_of = group_of_inputs(module, "g_idx", share, group_size)
    groups = share.groups(group_size, module) if group_of is None else (0, num_groups)
    values = unpacked_span(lambda words: module.tensor("qweight", words, share.outputs).t(), share.inputs, bits)
    zeros = unpacked_span(lambda words: module.tensor("qzeros", groups, words), share.outputs, bits).t()
    scales = module.tensor("scales", groups, share.outputs).t()
    # A stored zero of the largest value is 0 - 1.
    zeros = (zeros + zero_offset) & (2**bits - 1)
    if group_of is not None:
        return ordered_part(bits, values, scales, zeros, group_of, share, group_size)
    return QuantizedPart.of(bits, values, scales, zeros, group_size)
