"""Layers that keep a state of fixed size instead of keys and values: their memory, their heads, the shape of a step.

A state is a function of the tokens before it. A row of a step is cut into segments: so many tokens, the state that is
read first, and the state that is written. Where both are the same, it is updated in place. A row's next segment reads
what the one before it wrote; no row reads what another one writes in the same step.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

import numpy

from ..records import dataclass
from .arrays import DeviceArray
from .operands import Vector

NO_STATE = -1  # of `Segments.reads`: nothing comes before, the state is zeros

StateActivation = Literal["silu"] | None


class LayerStates(NamedTuple):
    """One layer's part of the memory of states; what a layer lacks is empty."""

    convolved: DeviceArray  # float32 [num_states, width - 1, channels]: a convolution's last inputs
    recurrent: DeviceArray  # float32 [num_states, heads, key_dim, value_dim]: a delta net's matrices


class Segment(NamedTuple):
    """Tokens of one row that follow one another."""

    tokens: slice
    read: int | None  # None: zeros
    write: int


@dataclass(eq=False)
class Segments:
    """One step's segments, in the order of its tokens: S segments, R rows. Empty ones, of no row, may follow."""

    starts: DeviceArray  # int32 [S + 1]: segment i is tokens starts[i]:starts[i + 1]
    reads: DeviceArray  # int32 [S]: NO_STATE or the state that is read first
    writes: DeviceArray  # int32 [S]: the state that is written; it holds all tokens up to the segment's end
    of_rows: DeviceArray  # int32 [R + 1]: row r's segments are of_rows[r]:of_rows[r + 1]
    longest: int | None = None  # tokens of a segment, at most; None: not known

    @property
    def columns(self) -> tuple[DeviceArray, DeviceArray, DeviceArray, DeviceArray]:
        return self.starts, self.reads, self.writes, self.of_rows

    @classmethod
    def of(cls, columns: Iterable[DeviceArray], longest: int) -> "Segments":
        starts, reads, writes, of_rows = columns
        return cls(starts, reads, writes, of_rows, longest)

    @classmethod
    def none(cls) -> "Segments":
        nothing, nobody = numpy.zeros(1, numpy.int32), numpy.zeros(0, numpy.int32)
        return cls(nothing, nobody, nobody, nothing, 0)

    @cached_property
    def listed(self) -> list[Segment]:
        """On the host, once a step for all layers."""
        starts, reads, writes = (each.tolist() for each in (self.starts, self.reads, self.writes))
        return [
            Segment(slice(start, end), None if read == NO_STATE else read, write)
            for start, end, read, write in zip(starts[:-1], starts[1:], reads, writes, strict=True)
        ]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.listed)


@dataclass(frozen=True, eq=False)
class DeltaHeads:
    """The heads of one layer's gated delta net, on this rank. Neighbouring value heads share a key head."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    log_decay: Vector  # float32 [num_value_heads]: A_log
    step_bias: Vector  # float32 [num_value_heads]: dt_bias

    @property
    def num_shared(self) -> int:
        """Value heads to a key head."""
        return self.num_value_heads // self.num_key_heads

    @property
    def width(self) -> int:
        """Numbers of a token's queries, keys and values together."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    def parts(self, x: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """Queries, keys [T, key heads, key_dim] and values [T, value heads, value_dim] of [T, width]."""
        keys = self.num_key_heads * self.key_dim
        query, key = (x[:, first : first + keys].reshape(len(x), -1, self.key_dim) for first in (0, keys))
        return query, key, x[:, 2 * keys :].reshape(len(x), -1, self.value_dim)
