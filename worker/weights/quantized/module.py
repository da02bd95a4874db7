"""Shared parts of the layouts: the tensors of one module, a rank's share of its matrix, and packed integers."""

from collections.abc import Callable
from typing import Protocol

import numpy

from ....kernels.arrays import Array
from ....protocol.errors import ConfigError
from ....records import dataclass

Span = tuple[int, int]  # first, last + 1
_WORD_BITS = 32


class Module(Protocol):
    """The stored tensors of one projection."""

    @property
    def name(self) -> str:
        """The module's full path, for errors."""

    def has(self, tensor: str) -> bool: ...

    def shape(self, tensor: str) -> tuple[int, ...]: ...

    def tensor(self, tensor: str, *spans: Span) -> Array:
        """Read the stored tensor, cut to the spans of its first dimensions."""


@dataclass(frozen=True)
class Share:
    """A rank's share of a matrix [out_features, in_features]."""

    out_features: int
    in_features: int
    outputs: Span
    inputs: Span

    @classmethod
    def of(cls, shape: tuple[int, ...], part: tuple[int, int, int] | None) -> "Share":
        spans = [(0, shape[0]), (0, shape[1])]
        if part is not None:
            dim, first, last = part
            spans[dim] = (first, last)
        return cls(shape[0], shape[1], *spans)

    @property
    def has_all_inputs(self) -> bool:
        return self.inputs == (0, self.in_features)

    def groups(self, group_size: int, module: Module) -> Span:
        """The groups of this rank's inputs, which must begin at a group."""
        first, last = self.inputs
        if group_size >= self.in_features:
            return 0, 1
        if first % group_size or (last % group_size and last != self.in_features):
            raise ConfigError(
                f"{module.name} shares a scale among {group_size} inputs, and tensor parallelism cuts its "
                f"{self.in_features:,} inputs at {first:,} and {last:,}, within such a group. Use a smaller "
                "tensor_parallel_size, a checkpoint with smaller groups, or for experts enable_expert_parallel=True."
            )
        return first // group_size, -(-last // group_size)


def unpacked(words: Array, bits: int) -> Array:
    """uint8 [rows, columns × 32 / bits] from int32 [rows, columns], the lowest bits first."""
    octets = numpy.ascontiguousarray(words).view(numpy.uint8)
    if bits == 8:
        return octets
    return numpy.stack((octets & 15, octets >> 4), -1).reshape(len(octets), -1)


def unpacked_span(read: Callable[[Span], Array], span: Span, bits: int) -> Array:
    """uint8 [rows, last - first] from words; `read` returns a span of columns, [rows, columns]."""
    first, last = span
    per_word = _WORD_BITS // bits
    start = first // per_word
    values = unpacked(read((start, -(-last // per_word))), bits)
    return values[:, first - start * per_word : last - start * per_word]


def bits_of(num_words: int, num_values: int, module: Module) -> int:
    """The bits per value, from the number of 32-bit words."""
    bits = _WORD_BITS * num_words / num_values
    for known in (4, 8):
        if -(-num_values * known // _WORD_BITS) == num_words:
            return known
    raise ConfigError(
        f"{module.name} fills {num_words:,} words with {num_values:,} values, {bits:.1f} bits each; "
        "4 and 8 bits are read. Use the model's original."
    )


def check_outputs(found: int, share: Share, module: Module) -> None:
    if found != share.out_features:
        raise ConfigError(f"{module.name} has {found:,} outputs, and config.json asks for {share.out_features:,}.")


def checked_groups(found: int, in_features: int, group_size: int, module: Module) -> int:
    """The group size, checked against the number of scales."""
    size = group_size or in_features
    if -(-in_features // size) != found:
        raise ConfigError(
            f"{module.name} has {found} scales for {in_features:,} inputs, and config.json says groups of {size:,}. "
            "The checkpoint is damaged or its config.json belongs to another one."
        )
    return min(size, in_features)
