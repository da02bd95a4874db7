"""Arrays as files, layers and native kernels hold them: numpy's, with ml_dtypes' number formats beside numpy's own.

torch's tensors are made of them where its operations or a GPU's kernels take them over (`torch/arrays.py`).
"""

import math
import mmap
from typing import Any, TypeAlias

import ml_dtypes
import numpy

Array: TypeAlias = numpy.ndarray[Any, numpy.dtype[Any]]
DType: TypeAlias = numpy.dtype[Any]
# An array on a device: numpy's or a tensor, used as both may be (indexing, assignment, arithmetic).
DeviceArray: TypeAlias = Any

FLOAT32 = numpy.dtype(numpy.float32)
FLOAT16 = numpy.dtype(numpy.float16)
BFLOAT16 = numpy.dtype(ml_dtypes.bfloat16)
FLOAT8_E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
FLOAT8_E5M2 = numpy.dtype(ml_dtypes.float8_e5m2)
FLOAT8_E8M0 = numpy.dtype(ml_dtypes.float8_e8m0fnu)  # powers of 2, by their exponents


def address(array: Array) -> int:
    """Where the array's first number lies; the array has to outlive whoever reads it there."""
    found: int = array.__array_interface__["data"][0]
    return found


def fresh_zeros(size: tuple[int, ...], dtype: DType) -> Array:
    """Zeros from the beginning of a page on, which the kernel allocates on first touch."""
    nbytes = math.prod(size) * dtype.itemsize
    memory = mmap.mmap(-1, max(1, nbytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # there is none of no bytes
    return numpy.ndarray(size, dtype, memory)
