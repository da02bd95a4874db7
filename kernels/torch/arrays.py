"""Arrays as tensors and tensors as arrays, which share their memory on a CPU."""

import warnings

import numpy
import torch
from torch import Tensor

from ..arrays import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT8_E8M0, FLOAT16, FLOAT32, Array, DType

_OF_NUMPY: dict[DType, torch.dtype] = {
    FLOAT32: torch.float32,
    FLOAT16: torch.float16,
    BFLOAT16: torch.bfloat16,
    FLOAT8_E4M3: torch.float8_e4m3fn,
    FLOAT8_E5M2: torch.float8_e5m2,
    FLOAT8_E8M0: torch.float8_e8m0fnu,
    numpy.dtype(numpy.float64): torch.float64,
    numpy.dtype(numpy.int64): torch.int64,
    numpy.dtype(numpy.int32): torch.int32,
    numpy.dtype(numpy.int16): torch.int16,
    numpy.dtype(numpy.int8): torch.int8,
    numpy.dtype(numpy.uint8): torch.uint8,
    numpy.dtype(numpy.bool_): torch.bool,
}
_OF_TORCH = {dtype: own for own, dtype in _OF_NUMPY.items()}
# Formats that only one side knows travel as integers of their size.
_CARRIERS = {BFLOAT16: numpy.int16} | dict.fromkeys((FLOAT8_E4M3, FLOAT8_E5M2, FLOAT8_E8M0), numpy.uint8)

# Views of mapped files are read only, and nobody writes to tensors made of them.
warnings.filterwarnings("ignore", "The given NumPy array is not writable")


def torch_dtype(dtype: DType) -> torch.dtype:
    return _OF_NUMPY[numpy.dtype(dtype)]


def numpy_dtype(dtype: torch.dtype) -> DType:
    return _OF_TORCH[dtype]


def tensor_of(array: Array, device: torch.device | str = "cpu") -> Tensor:
    """The array as a tensor; on a CPU it is the same memory, which must not be written if the array's must not."""
    carried = array.view(_CARRIERS[array.dtype]) if array.dtype in _CARRIERS else array
    return torch.from_numpy(carried).view(torch_dtype(array.dtype)).to(device)


def array_of(tensor: Tensor) -> Array:
    """A CPU's tensor as an array in the same memory."""
    own = numpy_dtype(tensor.dtype)
    if own not in _CARRIERS:
        return tensor.detach().numpy()
    return tensor.detach().view(torch_dtype(numpy.dtype(_CARRIERS[own]))).numpy().view(own)
