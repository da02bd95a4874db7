"""Gives layers access to their weights: a path in the checkpoint, together with settings that all layers share.

A layer holds a `Weights` (`model.layers.3.self_attn`), which has the path, number formats, ranks and
operations. Reads are lazy and sliced, so a rank touches only its own share; weights that were packed and cached earlier
are not read at all. Arrays come from a `Source`: a checkpoint, or dummy weights.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, NewType, Protocol, TypeVar

from ...kernels import LoraConfig, LoraWeights, Operations, WeightFormat
from ...kernels.arrays import Array, DType
from ...kernels.experts import UnlikeExperts
from ...kernels.operands import Vector
from ...kernels.operations import Adapters, PackedExperts, Table
from ...kernels.stored.ggml import GgmlPart
from ...kernels.stored.parts import WeightPart, rows_of, transposed
from ...protocol.errors import ConfigError
from ...records import dataclass
from ..ranks.parallel import Parallel
from .layer_formats import LayerFormats
from .packed.cache import PackedCache
from .piece import CheckpointPiece, Part

# The layers' operands on any backend: tensors, or their stand-ins while a step is recorded.
Rows = NewType("Rows", object)  # [tokens, width]
Weight = NewType("Weight", object)  # [out, in], packed for products

_Packed = TypeVar("_Packed")
_NAMED_PIECES = 8  # of a cached weight


class RowCut(NamedTuple):
    """Some rows of a matrix."""

    first: int
    end: int
    is_transposed: bool = False  # transposed, with so many columns

    def of(self, matrix: WeightPart) -> WeightPart:
        rows = rows_of(matrix, self.first, self.end)
        return transposed(rows) if self.is_transposed else rows


class Source(Protocol):
    """The source of arrays, which may be views of a file."""

    @property
    def bytes_read(self) -> int: ...

    @property
    def names(self) -> Iterable[str]: ...

    def has(self, name: str) -> bool: ...

    def read(self, name: str, shape: tuple[int, ...], part: Part | None) -> Array: ...

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None) -> WeightPart:
        """Like `read`, but returns stored integers or 8-bit floats with their scales."""

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None) -> Array:
        """Read a tensor of bytes that encode something else."""

    def group_size(self, module: str) -> int:
        """Neighbouring inputs of this stored projection that share a scale; 0: it is not stored in groups."""

    def pass_over(self, name: str) -> None:
        """Count a tensor as read although a cached weight replaces it."""

    def leftovers(self) -> list[str]: ...


class AdapterMemory(Protocol):
    """Memory for LoRA adapters, reserved while the layers are built."""

    @property
    def config(self) -> LoraConfig: ...

    def room_for(self, pieces: list[CheckpointPiece]) -> LoraWeights:
        """Reserve memory for adapters of a product that computes these projections, or this rank's part of them."""


@dataclass(frozen=True)
class Placement:
    """Settings that all layers of one rank share."""

    formats: LayerFormats  # of the matrices
    activations: DType  # between products
    ops: Operations[Any, Any]
    ranks: Parallel = field(default_factory=Parallel)
    cache: PackedCache | None = None  # of packed weights, if worth keeping
    adapters: AdapterMemory | None = None  # of LoRA, if enabled
    expert_parallel: bool = False  # ranks have whole experts instead of a part of each
    # Formats of the projections' weights, in order of first use; without torch's, which are the model's own.
    kinds: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Weights:
    """A path in the checkpoint."""

    source: Source
    placement: Placement
    prefix: str = ""

    @property
    def ops(self) -> Operations[Rows, Weight]:
        return self.placement.ops

    def at(self, name: str | int) -> "Weights":
        return replace(self, prefix=f"{self.prefix}{name}.")

    def has(self, name: str) -> bool:
        return self.source.has(self.prefix + name)

    def inner_span(self, width: int, down: str) -> tuple[int, int]:
        """This rank's share of an inner layer that the projection `down` reads: cut between groups of its scales, if
        there is at least one group per rank."""
        ranks, size = self.placement.ranks, self.source.group_size(self.prefix + down)
        step = size if 0 < size * ranks.size <= width else 1
        first, last = ranks.span(-(-width // step))
        return first * step, min(last * step, width)

    def pass_over(self, name: str) -> None:
        """Count a tensor as read, because another rank reads it."""
        self.source.pass_over(self.prefix + name)

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> WeightPart:
        """Read a stored matrix, or its part of `shape`. It may be a view of the file: pack it."""
        return self.source.matrix(self.prefix + name, shape, part)

    def packed(self, pieces: list[CheckpointPiece]) -> Weight:
        """Pack a weight whose outputs are those of all pieces, one after another."""
        # Layers of one product have one format, which `quantized_kinds` ensures.
        return self._noted(self.packed_as(self._format_of(pieces[0]), pieces))

    def packed_as(self, format: WeightFormat, pieces: list[CheckpointPiece]) -> Weight:
        """Pack a weight in this format."""
        ops = self.ops
        parts = (_fitting(self.matrix(*piece), format) for piece in pieces)
        return self._kept("weight", format, pieces, lambda: ops.pack([*parts], format))

    def packed_of(
        self,
        use: str,
        pieces: list[CheckpointPiece],
        make: Callable[[WeightPart], WeightPart],
        format: WeightFormat | None = None,
    ) -> Weight:
        """Pack a weight from the results of `make` for each piece, in their layers' format or this one; `use` names the
        result."""
        ops, format = self.ops, format or self._format_of(pieces[0])

        def made() -> Weight:
            return ops.pack([make(self.matrix(*piece)) for piece in pieces], format)

        return self._noted(self._kept(use, format, pieces, made))

    def packed_experts(self, experts: list[list[CheckpointPiece]]) -> PackedExperts:
        """Pack the weights of many experts, read one after another; each one's outputs are those of its pieces."""
        format = self._format_of(experts[0][0])
        parts = ([self.matrix(*piece) for piece in pieces] for pieces in experts)
        pieces = [piece for pieces in experts for piece in pieces]
        made = partial(self._one_weight, parts, len(experts), format)
        return self._noted(self._kept("experts", format, pieces, made))

    def packed_cuts(self, piece: CheckpointPiece, cuts: Sequence[RowCut]) -> list[Weight]:
        """Pack a weight for each of these cuts of a piece."""
        ops, format = self.ops, self._format_of(piece)
        read = lru_cache(1)(partial(self.matrix, *piece))  # never called if all are cached

        def made(cut: RowCut) -> Weight:
            return ops.pack([cut.of(read())], format)

        return [self._noted(self._kept(f"weight {tuple(cut)}", format, [piece], partial(made, cut))) for cut in cuts]

    def packed_stack(
        self, layer: str, pieces: list[CheckpointPiece], parts: Callable[[], Iterable[list[WeightPart]]], count: int
    ) -> PackedExperts:
        """Pack the weights of the experts stacked in these pieces, in the format of `layer`."""
        format = self.placement.formats.of(self.prefix + layer)
        if format.kind == "mxfp4" and len(pieces) == 1:  # floats after all
            format = self.placement.formats.own
        return self._noted(self._kept("experts", format, pieces, lambda: self._one_weight(parts(), count, format)))

    def _one_weight(self, experts: Iterable[list[WeightPart]], count: int, format: WeightFormat) -> PackedExperts:
        try:
            return self.ops.pack_experts(experts, count, format)
        except UnlikeExperts as error:
            raise ConfigError(f"{self.prefix.rstrip('.')}: {error}") from error

    def adapters_of(self, pieces: list[CheckpointPiece]) -> Adapters | None:
        """Reserve memory for adapters of a product whose outputs are those of these pieces, if LoRA is enabled."""
        if self.placement.adapters is None:
            return None
        return self.placement.adapters.room_for([piece._replace(name=self.prefix + piece.name) for piece in pieces])

    def table(self, piece: CheckpointPiece, format: WeightFormat) -> Table:
        """Read an embedding's table."""
        ops = self.ops
        return self._kept("table", format, [piece], lambda: ops.table(_fitting(self.matrix(*piece), format), format))

    def _format_of(self, piece: CheckpointPiece) -> WeightFormat:
        return self.placement.formats.of((self.prefix + piece.name).removesuffix(".weight"))

    def vector(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Vector:
        """Copy a vector applied to activations (a norm's weight, a bias), since the file may be replaced while the
        model runs."""
        return self.ops.vector(self.read(name, shape, part))

    def exact_vector(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Vector:
        """Copy a vector in float32, whatever the activations' format."""
        return self.ops.exact_vector(self.read(name, shape, part).reshape(-1))

    def read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        """Read an array in its own number format. It may be a view of the file."""
        return self.source.read(self.prefix + name, shape, part)

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None) -> Array:
        """Read a tensor of bytes that encode something else. It may be a view of the file."""
        return self.source.octets(self.prefix + name, shape, part)

    def _noted(self, weight: _Packed) -> _Packed:
        for kind in getattr(weight, "kinds", ()):
            self.placement.kinds[kind] = None
        return weight

    def _kept(self, use: str, format: WeightFormat, pieces: list[CheckpointPiece], make: Callable[[], Any]) -> Any:
        """The result of `make`, or the cached one from an earlier load."""
        cache = self.placement.cache
        if cache is None:
            return make()
        named = [piece._replace(name=self.prefix + piece.name) for piece in pieces]
        key = f"{use} {format.kind} {format.group_size} {_described(named)}"
        kept = cache.weight(key)
        if kept is None:
            return cache.add(key, make())
        for piece in named:
            self.source.pass_over(piece.name)
        return kept


def _fitting(matrix: WeightPart, format: WeightFormat) -> WeightPart:
    """Convert blocks to floats if float32 is requested, since products of blocks would round rows."""
    return matrix.dequantized() if isinstance(matrix, GgmlPart) and format.kind == "fp32" else matrix


def _described(pieces: list[CheckpointPiece]) -> str:
    """Describe these pieces; for very many, by the first, the last and a digest."""
    text = str([tuple(piece) for piece in pieces])
    if len(pieces) <= _NAMED_PIECES:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{tuple(pieces[0])} to {tuple(pieces[-1])} {digest}"
