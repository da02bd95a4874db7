"""The layout of compressed-tensors, in two forms; which one a module has shows in its tensors.

  pack-quantized   weight_packed      int32 [out, in × bits / 32], values + half their range
                   weight_zero_point  int32 [out × bits / 32, groups] in the same way, or none
                   weight_g_idx       int32 [in]: the group of each input, or none
  int-quantized    weight             int8 [out, in]
                   weight_zero_point  int8, as the scales, or none
  both             weight_scale       float [out, groups], [out, 1] for a row, [1] for the whole matrix

Stored scales of activations are ignored: each row's scale is computed at run time.
"""

import numpy

from ....kernels.arrays import Array
from ....kernels.stored.quantized import QuantizedPart
from ...description.quantization import Quantization
from .activation_order import group_of_inputs, ordered_part
from .module import Module, Share, Span, bits_of, check_outputs, checked_groups, unpacked_span


def is_compressed(module: Module) -> bool:
    if module.has("weight_packed"):
        return True
    return module.has("weight_scale") and module.tensor("weight", (0, 1)).dtype == numpy.int8


def read_compressed(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    group_size = _group_size(module, share, quantization)
    read = _packed if module.has("weight_packed") else _integers
    return read(module, share, group_size)


def _packed(module: Module, share: Share, group_size: int) -> QuantizedPart:
    num_outputs, num_words = module.shape("weight_packed")
    check_outputs(num_outputs, share, module)
    bits = bits_of(num_words, share.in_features, module)
    group_of = group_of_inputs(module, "weight_g_idx", share, group_size)
    groups = share.groups(group_size, module) if group_of is None else (0, module.shape("weight_scale")[1])
    values = unpacked_span(lambda words: module.tensor("weight_packed", share.outputs, words), share.inputs, bits)
    scales, zeros = _spread(module, "weight_scale", share, groups), _packed_zeros(module, share, groups, bits)
    if group_of is not None:
        return ordered_part(bits, values, scales, zeros, group_of, share, group_size)
    return QuantizedPart.of(bits, values, scales, zeros, group_size)


def _integers(module: Module, share: Share, group_size: int) -> QuantizedPart:
    check_outputs(module.shape("weight")[0], share, module)
    groups = share.groups(group_size, module)
    zeros = _spread(module, "weight_zero_point", share, groups) if module.has("weight_zero_point") else None
    zeros = zeros.astype(numpy.int16) if zeros is not None and zeros.any() else None
    values = module.tensor("weight", share.outputs, share.inputs)
    scales = _spread(module, "weight_scale", share, groups)
    return QuantizedPart(values, scales, zeros, group_size)


def _group_size(module: Module, share: Share, quantization: Quantization) -> int:
    """config.json's group size if it fits the number of scales; modules may have their own."""
    shape = module.shape("weight_scale")
    num_groups = shape[1] if len(shape) > 1 else 1
    if (num_groups > 1 and share.in_features % num_groups) or _fits(quantization.group_size, num_groups, share):
        return checked_groups(num_groups, share.in_features, quantization.group_size, module)
    return share.in_features // num_groups


def _fits(group_size: int, num_groups: int, share: Share) -> bool:
    return group_size > 0 and -(-share.in_features // group_size) == num_groups


def _spread(module: Module, name: str, share: Share, groups: Span) -> Array:
    """Expand a tensor that may hold one number for all outputs to [outputs, groups]."""
    shape = module.shape(name)
    num_outputs = share.outputs[1] - share.outputs[0]
    if shape[:1] == (share.out_features,):
        found = module.tensor(name, share.outputs, groups) if len(shape) > 1 else module.tensor(name, share.outputs)
        return found.reshape(num_outputs, -1)
    return numpy.repeat(module.tensor(name).reshape(1, 1), num_outputs, 0)


def _packed_zeros(module: Module, share: Share, groups: Span, bits: int) -> Array | None:
    if not module.has("weight_zero_point"):
        return None
    if module.shape("weight_zero_point")[:1] == (share.out_features,):  # not packed, as by the first versions
        signed = module.tensor("weight_zero_point", share.outputs, groups)
        return (signed.astype(numpy.int16) + 2 ** (bits - 1)).astype(numpy.uint8)

    def words_of(span: Span) -> Array:
        return module.tensor("weight_zero_point", span, groups).T

    return unpacked_span(words_of, share.outputs, bits).T
