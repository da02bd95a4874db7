"""What recorded steps need of the ranks: memory in which kernels find all ranks' rows.

`SharedMemory` is that of ranks on one machine, `CopiedMemory` that of ranks on several.
"""

import ctypes
from typing import Protocol

from ..arrays import Array
from ..operations import Ranks
from .program import Program
from .structs import Meeting


class RankMemory(Protocol):
    @property
    def meeting(self) -> Meeting: ...

    def area(self, number: int, rank: int | None = None) -> Array: ...

    def parts(self, number: int) -> "ctypes.Array[ctypes.c_void_p]": ...

    def record_sum(self, program: Program, number: int, width: int) -> None: ...

    def record_gather(self, program: Program, first: int, last: int, width: int) -> None: ...


class KernelRanks(Ranks, Protocol):
    def memory(self, num_areas: int, area_bytes: int) -> RankMemory:
        """`num_areas` areas of `area_bytes` in each rank's memory."""
