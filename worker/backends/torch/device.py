"""A device whose arrays are torch's tensors: a CPU, or a GPU that computes in parallel with the host."""

from functools import cache

import numpy
import torch
from torch import Tensor

from ....kernels.arrays import Array, DType
from ....kernels.torch.arrays import array_of, tensor_of, torch_dtype
from ....records import dataclass
from ...device import Device, HostCopy, processor_name


@dataclass(frozen=True)
class TensorDevice:
    torch_device: torch.device

    def __str__(self) -> str:
        return str(self.torch_device)

    @property
    def kind(self) -> str:
        return self.torch_device.type

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.torch_device) if self.is_asynchronous else processor_name()

    @property
    def is_asynchronous(self) -> bool:
        return self.kind == "cuda"

    def put(self, array: Array) -> Tensor:
        tensor = tensor_of(array)
        return pinned(tensor).to(self.torch_device, non_blocking=True) if self.is_asynchronous else tensor

    def zeros(self, shape: tuple[int, ...], dtype: DType | type) -> Tensor:
        if not self.is_asynchronous:
            return tensor_of(numpy.zeros(shape, dtype))  # pages are allocated on first touch
        return torch.zeros(shape, dtype=torch_dtype(numpy.dtype(dtype)), device=self.torch_device)

    def cast(self, array: Tensor, dtype: DType | type) -> Tensor:
        return array.to(torch_dtype(numpy.dtype(dtype)))

    def host_copy(self, array: Tensor) -> HostCopy:
        if not self.is_asynchronous:
            return lambda: array_of(array)
        side_stream = _side_stream(self.torch_device)
        side_stream.wait_stream(torch.cuda.current_stream(self.torch_device))
        with torch.cuda.stream(side_stream):
            copied = torch.empty(array.shape, dtype=array.dtype, pin_memory=True)
            copied.copy_(array, non_blocking=True)
            arrived = torch.cuda.Event(blocking=True)  # the waiting thread sleeps
            arrived.record(side_stream)
        array.record_stream(side_stream)  # its memory isn't reused before the copy is done

        def waited() -> Array:
            arrived.synchronize()
            return array_of(copied)

        return waited

    def computing(self) -> torch.inference_mode:
        return torch.inference_mode()

    def wait_for_host_copies(self) -> None:
        if self.is_asynchronous:
            torch.cuda.current_stream(self.torch_device).wait_stream(_side_stream(self.torch_device))


def tensor_device(device: Device) -> TensorDevice:
    """The same device, with tensors as its arrays."""
    return TensorDevice(torch_device(device))


def torch_device(device: Device) -> torch.device:
    """The device as torch names it."""
    return torch.device(str(device))


def pinned(tensor: Tensor) -> Tensor:
    """The tensor in pinned memory: copies from other memory may wait for earlier work of the GPU."""
    return tensor.pin_memory() if torch.cuda.is_available() else tensor


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
