"""The layouts of GPTQ and AWQ, whose small integers are packed into words of 32 bits.

GPTQ: words of inputs, one column per output. In the first version of the format a zero is stored less 1. With
activation order (`desc_act`) the groups are spread over the inputs.

  qweight  int32 [in × bits / 32, out]        qzeros  int32 [groups, out × bits / 32]
  scales   float [groups, out]                g_idx   int32 [in]: the group of each input

AWQ ("gemm"): words of outputs, interleaved for one GPU kernel. Of a word's eight values the one in the lowest bits is
output 0, the next one output 2.

  qweight  int32 [in, out / 8]     qzeros  int32 [groups, out / 8]     scales  float [groups, out]
"""

from ....kernels.arrays import Array
from ....kernels.stored.quantized import QuantizedPart
from ...description.quantization import Quantization
from .activation_order import group_of_inputs, ordered_part
from .module import Module, Share, Span, bits_of, check_outputs, checked_groups, unpacked, unpacked_span

_AWQ_BITS, _PER_WORD = 4, 8
# Index of output 0, 1, 2, … within a word.
_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]


def read_gptq(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    return _read_gptq(module, share, quantization, zero_offset=1)


def read_gptq_v2(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    return _read_gptq(module, share, quantization, zero_offset=0)


def _read_gptq(module: Module, share: Share, quantization: Quantization, zero_offset: int) -> QuantizedPart:
    check_outputs(module.shape("qweight")[1], share, module)
    bits = bits_of(module.shape("qweight")[0], share.in_features, module)
    num_groups = module.shape("scales")[0]
    group_size = checked_groups(num_groups, share.in_features, quantization.group_size_of(module.name), module)
    group_of = group_of_inputs(module, "g_idx", share, group_size)
    groups = share.groups(group_size, module) if group_of is None else (0, num_groups)
    values = unpacked_span(lambda words: module.tensor("qweight", words, share.outputs).T, share.inputs, bits)
    zeros = unpacked_span(lambda words: module.tensor("qzeros", groups, words), share.outputs, bits).T
    scales = module.tensor("scales", groups, share.outputs).T
    # A stored zero with the largest value means 0 - 1.
    zeros = (zeros + zero_offset) & (2**bits - 1)
    if group_of is not None:
        return ordered_part(bits, values, scales, zeros, group_of, share, group_size)
    return QuantizedPart.of(bits, values, scales, zeros, group_size)


def read_awq(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    check_outputs(_PER_WORD * module.shape("qweight")[1], share, module)
    said = quantization.group_size_of(module.name)
    group_size = checked_groups(module.shape("scales")[0], share.in_features, said, module)
    groups = share.groups(group_size, module)
    return QuantizedPart.of(
        _AWQ_BITS,
        _awq_outputs(module, "qweight", share.inputs, share.outputs).T,
        module.tensor("scales", groups, share.outputs).T,
        _awq_outputs(module, "qzeros", groups, share.outputs).T,
        group_size,
    )


def _awq_outputs(module: Module, name: str, rows: Span, outputs: Span) -> Array:
    """uint8 [rows, outputs]"""
    first, last = outputs
    start = first // _PER_WORD
    words = module.tensor(name, rows, (start, -(-last // _PER_WORD)))
    values = unpacked(words, _AWQ_BITS).reshape(len(words), -1, _PER_WORD)[..., _PLACES].reshape(len(words), -1)
    return values[:, first - start * _PER_WORD : last - start * _PER_WORD]
