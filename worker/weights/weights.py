"""What layers read their weights by: a place in the checkpoint, with what is the same for all layers of a tree.

A layer holds a `Weights` (`model.layers.3.self_attn`); beside the place stand device, number formats, ranks and
operations. Reads are lazy and sliced, so a rank touches its own share only; weights that were packed before and kept
are not read at all. Where tensors come from is a `Source`: a checkpoint, or numbers that are made up.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, NewType, Protocol, TypeVar

import torch
from torch import Tensor

from ...kernels import LoraConfig, LoraWeights, Operations, WeightFormat
from ...kernels.operations import Adapters, PackedExperts, Table
from ...kernels.packed.gpu_experts import UnlikeExperts
from ...kernels.stored.ggml import GgmlPart
from ...kernels.stored.parts import WeightPart
from ...protocol.errors import ConfigError
from ..ranks.parallel import Parallel
from .layer_formats import LayerFormats
from .packed.cache import PackedCache
from .piece import CheckpointPiece, Part

# What layers compute with, whichever backend does it: tensors, or what stands for them while a step is recorded.
Rows = NewType("Rows", object)  # [tokens, width]
Weight = NewType("Weight", object)  # [out, in], packed for products

_Packed = TypeVar("_Packed")
_NAMED_PIECES = 8  # of a weight that is kept


class RowCut(NamedTuple):
    """Some rows of a matrix."""

    first: int
    end: int
    is_transposed: bool = False  # as a matrix of so many columns

    def of(self, matrix: WeightPart) -> WeightPart:
        rows = matrix[self.first : self.end] if isinstance(matrix, Tensor) else matrix.rows(self.first, self.end)
        if not self.is_transposed:
            return rows
        return rows.T if isinstance(rows, Tensor) else rows.transposed()


class Source(Protocol):
    """Where tensors come from."""

    @property
    def bytes_read(self) -> int: ...

    @property
    def names(self) -> Iterable[str]: ...

    def has(self, name: str) -> bool: ...

    def read(self, name: str, shape: tuple[int, ...], part: Part | None) -> Tensor: ...

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None) -> WeightPart:
        """What `read` gives, or integers or 8-bit floats with their scales where it is stored so."""

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None) -> Tensor:
        """Bytes that are no numbers by themselves."""

    def group_size(self, module: str) -> int:
        """Neighbouring inputs that share a scale where this projection is stored; 0: it is not stored in groups."""

    def pass_over(self, name: str) -> None:
        """Asked for, and not read, because what would be made of it is there."""

    def leftovers(self) -> list[str]: ...


class AdapterMemory(Protocol):
    """Memory for LoRA adapters, reserved while the layers are built."""

    @property
    def config(self) -> LoraConfig: ...

    def room_for(self, pieces: list[CheckpointPiece]) -> LoraWeights:
        """For the adapters of a product that computes these projections, or this rank's part of them."""


@dataclass(frozen=True)
class Placement:
    """What all layers of one rank have in common."""

    device: torch.device
    formats: LayerFormats  # of the matrices
    activations: torch.dtype  # between the products
    ops: Operations[Any, Any]
    ranks: Parallel = field(default_factory=Parallel)
    cache: PackedCache | None = None  # of packed weights, where they are worth keeping
    adapters: AdapterMemory | None = None  # of LoRA, where there may be any
    expert_parallel: bool = False  # ranks have whole experts, not a part of each
    # Of the projections' weights, in the order of their first use; none of torch's, whose numbers are the model's own.
    kinds: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Weights:
    """A place in the checkpoint."""

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
        """This rank's share of an inner layer that the projection `down` reads: cut where groups of its scales end, if
        there is one for each rank."""
        ranks, size = self.placement.ranks, self.source.group_size(self.prefix + down)
        step = size if 0 < size * ranks.size <= width else 1
        first, last = ranks.span(-(-width // step))
        return first * step, min(last * step, width)

    def pass_over(self, name: str) -> None:
        """Another rank reads it."""
        self.source.pass_over(self.prefix + name)

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> WeightPart:
        """A tensor for products, [its part of] `shape`, as it is stored. It may be a view of the file: pack it."""
        return self.source.matrix(self.prefix + name, shape, part)

    def packed(self, pieces: list[CheckpointPiece]) -> Weight:
        """The weight of products whose outputs are those of all pieces, one after the other."""
        # Layers of one product have one format: `quantized_kinds` has seen to that.
        return self._noted(self.packed_as(self._format_of(pieces[0]), pieces))

    def packed_as(self, format: WeightFormat, pieces: list[CheckpointPiece]) -> Weight:
        """The same in this format."""
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
        """The weight of products with what `make` gives of each piece, in their layers' format or this one; `use` says
        what that is."""
        ops, format = self.ops, format or self._format_of(pieces[0])

        def made() -> Weight:
            return ops.pack([make(self.matrix(*piece)) for piece in pieces], format)

        return self._noted(self._kept(use, format, pieces, made))

    def packed_experts(self, experts: list[list[CheckpointPiece]]) -> PackedExperts:
        """The weights of many experts, read one after the other: the outputs of each are those of its pieces."""
        format = self._format_of(experts[0][0])
        parts = ([self.matrix(*piece) for piece in pieces] for pieces in experts)
        pieces = [piece for pieces in experts for piece in pieces]
        made = partial(self._one_weight, parts, len(experts), format)
        return self._noted(self._kept("experts", format, pieces, made))

    def packed_cuts(self, piece: CheckpointPiece, cuts: Sequence[RowCut]) -> list[Weight]:
        """A weight for each of these cuts of a piece."""
        ops, format = self.ops, self._format_of(piece)
        read = lru_cache(1)(partial(self.matrix, *piece))  # not at all where all of them were kept

        def made(cut: RowCut) -> Weight:
            return ops.pack([cut.of(read())], format)

        return [self._noted(self._kept(f"weight {tuple(cut)}", format, [piece], partial(made, cut))) for cut in cuts]

    def packed_stack(
        self, layer: str, pieces: list[CheckpointPiece], parts: Callable[[], Iterable[list[WeightPart]]], count: int
    ) -> PackedExperts:
        """The weights of many experts that these pieces hold together, in the format that `layer` has."""
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
        """Room for the adapters of a product whose outputs are those of these pieces, if there may be any."""
        if self.placement.adapters is None:
            return None
        return self.placement.adapters.room_for([piece._replace(name=self.prefix + piece.name) for piece in pieces])

    def table(self, piece: CheckpointPiece, format: WeightFormat) -> Table:
        """An embedding's table."""
        ops = self.ops
        return self._kept("table", format, [piece], lambda: ops.table(_fitting(self.matrix(*piece), format), format))

    def _format_of(self, piece: CheckpointPiece) -> WeightFormat:
        return self.placement.formats.of((self.prefix + piece.name).removesuffix(".weight"))

    def vector(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """A tensor that meets the activations: a norm's weight, a bias. A copy: the file may be replaced
        while the model runs."""
        return self.read(name, shape, part).to(self.placement.device, self.placement.activations, copy=True)

    def exact_vector(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """One in float32, whatever stands between the products."""
        return self.read(name, shape, part).to(self.placement.device, torch.float32, copy=True).flatten()

    def read(self, name: str, shape: tuple[int, ...], part: Part | None) -> Tensor:
        """A tensor in its own number format. It may be a view of the file."""
        return self.source.read(self.prefix + name, shape, part)

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None) -> Tensor:
        """One of bytes that are no numbers by themselves. It may be a view of the file."""
        return self.source.octets(self.prefix + name, shape, part)

    def _noted(self, weight: _Packed) -> _Packed:
        for kind in getattr(weight, "kinds", ()):
            self.placement.kinds[kind] = None
        return weight

    def _kept(self, use: str, format: WeightFormat, pieces: list[CheckpointPiece], make: Callable[[], Any]) -> Any:
        """What `make` gives, or what it gave when this model was loaded before."""
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
    """Numbers where float32 is asked for, even of what is stored in blocks: rows must not be rounded there either."""
    return matrix.dequantized() if isinstance(matrix, GgmlPart) and format.kind == "fp32" else matrix


def _described(pieces: list[CheckpointPiece]) -> str:
    """Which these are; of very many the first, the last and a digest."""
    text = str([tuple(piece) for piece in pieces])
    if len(pieces) <= _NAMED_PIECES:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{tuple(pieces[0])} to {tuple(pieces[-1])} {digest}"
