"""Reads 8-bit floats with scales, in the names and shapes of all tools that write them.

  weight        float8_e4m3fn or float8_e5m2 [out, in]
  weight_scale  (compressed-tensors, ModelOpt, FBGEMM) or weight_scale_inv (DeepSeek, Qwen, MiniMax), which is a factor
                just so: one number for the matrix, [out] or [out, 1] for its rows, [out / rows, in / columns] rounded
                up for blocks. Any float format, or uint8: the exponents of powers of two.

Stored scales of activations are ignored: each row's scale is computed at run time.
"""

import numpy

from ....kernels.arrays import FLOAT8_E4M3, FLOAT8_E5M2, FLOAT8_E8M0, Array
from ....kernels.stored.float8 import Float8Part
from ....protocol.errors import ConfigError
from ...description.quantization import Quantization
from .module import Module, Share, check_outputs

_SCALES = ("weight_scale", "weight_scale_inv")
_USUAL_BLOCKS = (128, 64, 32, 16)  # rows or columns, if config.json has no size


def is_float8(module: Module) -> bool:
    return module.has("weight") and module.tensor("weight", (0, 0)).dtype in (FLOAT8_E4M3, FLOAT8_E5M2)


def read_float8(module: Module, share: Share, quantization: Quantization | None) -> Float8Part:
    _check_shape(module, share)
    scales = _scales(module)
    known = quantization.block if quantization is not None else (0, 0)
    found = zip((share.out_features, share.in_features), scales.shape, known, strict=True)
    rows, columns = (_block_size(module, *each) for each in found)
    first_row, first_column = share.outputs[0] // rows, share.inputs[0] // columns
    own = scales[first_row : -(-share.outputs[1] // rows), first_column : -(-share.inputs[1] // columns)]
    return Float8Part(
        module.tensor("weight", share.outputs, share.inputs),
        numpy.ascontiguousarray(own),
        (rows, columns),
        (share.outputs[0] - first_row * rows, share.inputs[0] - first_column * columns),
    )


def _check_shape(module: Module, share: Share) -> None:
    shape = module.shape("weight")
    check_outputs(shape[0], share, module)
    if shape != (share.out_features, share.in_features):
        raise ConfigError(f"{module.name} has shape {shape}, and config.json asks for {share.in_features:,} inputs.")


def _scales(module: Module) -> Array:
    """float32 [blocks of rows, blocks of columns]"""
    name = next(filter(module.has, _SCALES), None)
    if name is None:
        raise ConfigError(
            f"{module.name} is stored as 8-bit floats without a {' or '.join(_SCALES)}. Download the "
            "model again as a whole, or use its original."
        )
    stored = module.tensor(name)
    if stored.dtype == numpy.uint8:
        stored = stored.view(FLOAT8_E8M0)
    scales = stored.astype(numpy.float32)
    if scales.size == 1:
        return scales.reshape(1, 1)
    if scales.ndim == 4:  # [blocks of rows, 1, blocks of columns, 1], ModelOpt's form
        scales = scales[:, 0, :, 0]
    return scales.reshape(len(scales), -1)


def _block_size(module: Module, size: int, count: int, known: int) -> int:
    """The number of rows or columns, out of `size`, that share each of `count` scales; `known` is config.json's."""
    if count == 1:
        return size
    if count == size:
        return 1
    # The last block may be shorter, so a usual size is preferred to one that divides evenly.
    fitting = (usual for usual in (known, *_USUAL_BLOCKS) if usual and -(-size // usual) == count)
    if found := next(fitting, 0):
        return found
    if size % count == 0:
        return size // count
    blocks = f"blocks of {known}" if known else "no blocks that fit"
    raise ConfigError(
        f"{module.name} has {count:,} scales along {size:,} numbers, and config.json says {blocks}. The checkpoint is "
        "damaged or its config.json belongs to another one."
    )
