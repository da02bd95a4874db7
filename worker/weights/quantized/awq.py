"""The layout of AWQ ("gemm"): words of outputs, interleaved as one kernel of GPUs wants them.

  qweight  int32 [in, out / 8]     qzeros  int32 [groups, out / 8]     scales  float [groups, out]

Of a word's eight values the one in the lowest bits is output 0, the next one output 2.
"""

from torch import Tensor

from ....kernels.quantized_part import QuantizedPart
from ...description.quantization import Quantization
from .module import Module, Share, Span, check_outputs, checked_groups, unpacked

_BITS, _PER_WORD = 4, 8
# Where in a word output 0, 1, 2, … lies.
_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]


def read_awq(module: Module, share: Share, quantization: Quantization) -> QuantizedPart:
    check_outputs(_PER_WORD * module.shape("qweight")[1], share, module)
    said = quantization.group_size_of(module.name)
    group_size = checked_groups(module.shape("scales")[0], share.in_features, said, module)
    groups = share.groups(group_size, module)
    return QuantizedPart.of(
        _BITS,
        _outputs(module, "qweight", share.inputs, share.outputs).t(),
        module.tensor("scales", groups, share.outputs).t(),
        _outputs(module, "qzeros", groups, share.outputs).t().contiguous(),
        group_size,
    )


def _outputs(module: Module, name: str, rows: Span, outputs: Span) -> Tensor:
    """uint8 [rows, outputs]"""
    first, last = outputs
    start = first // _PER_WORD
    words = module.tensor(name, rows, (start, -(-last // _PER_WORD)))
    values = unpacked(words, _BITS).unflatten(1, (-1, _PER_WORD))[..., _PLACES].flatten(1)
    return values[:, first - start * _PER_WORD : last - start * _PER_WORD]
