"""A step as a list of kernel calls: recorded once, while layers are called with buffers, and replayed by one call.

A `Buffer` stands for rows of float32 that one kernel writes and later ones read. When the last reference to it is
dropped while recording, no later call can name it, so its memory serves the next buffer. A consumer that wants rows
as 8-bit integers asks the buffer for them, and the kernel that wrote it is told to write those as well.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import CFUNCTYPE, addressof, c_void_p, cast
from functools import partial

from ..arrays import FLOAT32, Array, address
from .layer import quantized_sizes
from .library import Library, Struct
from .structs import Call, Quantized, Recording
from .weights.huge_pages import zeroed

_FUNCTION = CFUNCTYPE(None, c_void_p)  # step.hpp: Kernel


class Arena:
    """Memory for buffers, lent and taken back; it is never touched here, so what no step uses costs nothing."""

    def __init__(self) -> None:
        self._free: list[Array] = []

    def lend(self, owner: object, num_bytes: int) -> Array:
        """At least so many bytes, 64-byte aligned, until `owner` is dropped."""
        fitting = [memory for memory in self._free if num_bytes <= memory.nbytes <= 2 * num_bytes]
        if fitting:
            memory = min(fitting, key=len)
            self._free[:] = [other for other in self._free if other is not memory]
        else:
            memory = zeroed(num_bytes)
        weakref.finalize(owner, self._free.append, memory).atexit = False
        return memory


class Buffer:
    """Rows of float32 between two kernels."""

    def __init__(self, program: "Program", width: int, memory: Array | None = None) -> None:
        self.program = program
        self.width = width
        self.memory = program.arena.lend(self, 4 * width * program.capacity) if memory is None else memory
        self.writer: Struct | None = None  # the arguments of the kernel that writes it
        self.call: int | None = None  # of the program, by the address of its arguments: the one that writes it
        # The rows as 8-bit integers, by how many of them share a scale; and memory for those whose numbers these rows
        # no longer hold.
        self._quantized: dict[int, Quantized] = {}
        self._forgotten: dict[int, Quantized] = {}

    def data_ptr(self) -> int:
        return address(self.memory)

    def rows(self, count: int) -> Array:
        """The first rows, in place."""
        return self.memory[: 4 * count * self.width].view(FLOAT32).reshape(count, self.width)

    def quantized(self, group: int = 0) -> Quantized:
        """The same rows as 8-bit integers, which the writer makes as well from now on."""
        if group not in self._quantized:
            self._quantized[group] = self.room_for_integers(group)
            self.writer.quantized = self._quantized[group]  # type: ignore[union-attr]
        return self._quantized[group]

    def is_quantized(self, group: int = 0) -> bool:
        return group in self._quantized

    @property
    def writer_quantizes(self) -> bool:
        """Whether the kernel that writes these rows can write integers, too, and doesn't yet."""
        return hasattr(type(self.writer), "quantized") and not self.writer.quantized.values  # type: ignore[union-attr]

    def room_for_integers(self, group: int = 0) -> Quantized:
        return self._forgotten.pop(group, None) or self.another_quantized(self.width, group)

    def forget_integers(self) -> None:
        """These rows have been changed in place, after what their integers were made of."""
        self._forgotten |= self._quantized
        self._quantized.clear()

    def keep_quantized(self, quantized: Quantized) -> Quantized:
        """What a call of its own has made of these rows, for all that multiply them from here on."""
        self._quantized[quantized.group] = quantized
        return quantized

    def another_quantized(self, num_values: int, group: int = 0) -> Quantized:
        """Memory for rows of so many 8-bit integers, for as long as this buffer is in use."""
        (width, num_scales, num_sums), capacity = quantized_sizes(num_values, group), self.program.capacity
        sizes = (capacity * width, 4 * capacity * num_scales, 4 * capacity, 4 * capacity * num_sums)
        parts = [address(self.program.arena.lend(self, size)) for size in sizes]
        return Quantized(*parts, width, group=group)


class Program:
    """Calls in their order, for steps of up to `capacity` rows."""

    def __init__(self, library: Library, capacity: int, num_rows: int) -> None:
        self.library = library
        self.capacity = capacity
        self.num_rows = num_rows  # the address of the step's number of rows, int32
        self.arena = Arena()
        # Kernels by name, or functions by address, each with the address of its arguments.
        self.calls: list[tuple[str | int, int]] = []
        self._kept: list[object] = []  # what calls point to
        self._raised: list[BaseException] = []  # by functions of Python's, in a replay

    def buffer(self, width: int) -> Buffer:
        return Buffer(self, width)

    def buffer_in(self, memory: Array, width: int) -> Buffer:
        """A buffer in memory that others share."""
        return Buffer(self, width, memory)

    def call(self, kernel: str, arguments: Struct, writes: Buffer | None = None, keep: object = None) -> None:
        """Record a call; `keep` is what its arguments point to."""
        if writes is not None:
            writes.writer, writes.call = arguments, addressof(arguments)
        self.calls.append((kernel, addressof(arguments)))
        self._kept += [arguments, keep]

    def call_function(self, function: Callable[[], None]) -> None:
        """Record a call of Python's. What it raises is raised by the replay."""

        def called(arguments: int | None) -> None:
            try:
                if not self._raised:
                    function()
            except BaseException as error:
                self._raised.append(error)

        kernel = _FUNCTION(called)
        self.calls.append((cast(kernel, c_void_p).value or 0, 0))
        self._kept.append(kernel)

    def call_first(self, kernel: str, arguments: Struct, keep: object = None) -> None:
        """Record a call that comes before all others."""
        self.call(kernel, arguments, keep=keep)
        self.calls.insert(0, self.calls.pop())

    def is_last(self, written: Buffer) -> bool:
        """Whether the last call writes this buffer."""
        return bool(self.calls) and self.calls[-1][1] == written.call

    def take_back(self, written: Buffer, prefix: str) -> str | None:
        """The last call's kernel, if it writes this buffer and is called so; another call must then replace it."""
        kernel = self.calls[-1][0] if self.is_last(written) else 0
        if not isinstance(kernel, str) or not kernel.startswith(prefix):
            return None
        self.calls.pop()
        return kernel

    @contextmanager
    def counting(self, num_rows: int) -> Iterator[None]:
        """Calls have so many rows meanwhile, never more than `capacity`: another address."""
        own, self.num_rows = self.num_rows, num_rows
        yield
        self.num_rows = own

    def seal(self) -> "Program":
        self._replay = self.replaying(self.calls)
        return self

    def replaying(self, calls: Sequence[tuple[str | int, int]]) -> Callable[[], None]:
        """What replays these of its calls."""
        addresses = (
            (self.library.address(kernel) if isinstance(kernel, str) else kernel, arguments)
            for kernel, arguments in calls
        )
        listed = (Call * len(calls))(*(Call(*each) for each in addresses))
        recording = Recording(addressof(listed), len(calls))
        self._kept += [listed, recording]
        replay = partial(self.library.function("penstock_replay"), addressof(recording))
        if all(isinstance(kernel, str) for kernel, _ in calls):
            return replay

        def replay_or_raise() -> None:
            replay()
            if self._raised:
                raise self._raised.pop()

        return replay_or_raise

    def replay(self) -> None:
        """All of them, once it is sealed."""
        self._replay()
