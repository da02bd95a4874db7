"""The device that a rank computes on, the arrays that lie there, and copies between it and the host.

`HostDevice` holds numpy's arrays, for native kernels. `backends/torch/device.py` has the one that holds tensors.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy

from ..kernels.arrays import Array, DeviceArray, DType
from ..records import dataclass

HostCopy = Callable[[], Array]  # waits for a copy on the host and returns it


class Device(Protocol):
    @property
    def kind(self) -> str:
        """cpu or cuda."""

    @property
    def name(self) -> str:
        """The name of the processor or card."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether it computes in parallel with the host, which waits for its results."""

    def put(self, array: Array) -> DeviceArray:
        """The array on the device: the same memory on a CPU, else a copy that the host doesn't wait for."""

    def zeros(self, shape: tuple[int, ...], dtype: DType | type) -> DeviceArray: ...

    def cast(self, array: DeviceArray, dtype: DType | type) -> DeviceArray: ...

    def host_copy(self, array: DeviceArray) -> HostCopy:
        """Begin a copy on the host, made during the next step; on a CPU it is the array itself."""

    def computing(self) -> AbstractContextManager[object]:
        """The context that steps are computed in."""

    def wait_for_host_copies(self) -> None:
        """Make later launches, which may overwrite arrays, wait until pending copies to the host have read them."""


@dataclass(frozen=True)
class HostDevice:
    """The processor, with numpy's arrays."""

    kind: str = "cpu"
    is_asynchronous: bool = False

    def __str__(self) -> str:
        return self.kind

    @property
    def name(self) -> str:
        return processor_name()

    def put(self, array: Array) -> Array:
        return array

    def zeros(self, shape: tuple[int, ...], dtype: DType | type) -> Array:
        return numpy.zeros(shape, dtype)

    def cast(self, array: Array, dtype: DType | type) -> Array:
        return array.astype(dtype, copy=False)

    def host_copy(self, array: Array) -> HostCopy:
        return lambda: array

    def computing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def wait_for_host_copies(self) -> None:
        pass


def processor_name() -> str:
    with open("/proc/cpuinfo") as lines:
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(names, "CPU")
