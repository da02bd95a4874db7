"""Weights on disk, read by the layers that need them.

A layer holds a `Weights`: a place in the checkpoint (`model.layers.3.self_attn`) with what is the same for all layers
of a tree (device, number formats, ranks, operations). Reads are lazy and sliced, so a rank touches its own share only;
weights that were packed before and kept are not read at all. `DummySource` makes the numbers up on the device instead.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor

from ...kernels import Operations, WeightFormat
from ...kernels.float8_part import WeightPart
from ...protocol.errors import ConfigError, ModelNotFoundError
from ...protocol.files.model_file import read_model_json
from ..lora.adapters import AdapterBank
from ..models.config import ModelConfig
from ..models.quantization import Quantization
from ..parallel import Parallel
from .layer_formats import LayerFormats
from .layout import FindLayout
from .mapped_files import MappedFiles
from .packed_cache import PackedCache
from .paddle_layout import layout_of
from .piece import CheckpointPiece, Part, index_of
from .quantized import COMPANIONS, Share, is_in_groups, is_quantized, read_part
from .weight_files import own_weight_files

_NAMED_PIECES = 8  # of a weight that is kept
_FOREIGN = (".bin", ".pt", ".pth", ".gguf", ".pdparams", ".distcp")  # weights as others write them


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


_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


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


@dataclass(frozen=True)
class Placement:
    """What all layers of one rank have in common."""

    device: torch.device
    formats: LayerFormats  # of the matrices
    activations: torch.dtype  # between the products
    ops: Operations
    ranks: Parallel = field(default_factory=Parallel)
    cache: PackedCache | None = None  # of packed weights, where they are worth keeping
    adapters: AdapterBank | None = None  # of LoRA, where there may be any
    expert_parallel: bool = False  # ranks have whole experts, not a part of each


@dataclass(frozen=True)
class Weights:
    """A place in the checkpoint."""

    source: Source
    placement: Placement
    prefix: str = ""

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

    def packed(self, pieces: list[CheckpointPiece]) -> Any:
        """The weight of products whose outputs are those of all pieces, one after the other."""
        # Layers of one product have one format: `quantized_kinds` has seen to that.
        return self.packed_as(self._format_of(pieces[0]), pieces)

    def packed_as(self, format: WeightFormat, pieces: list[CheckpointPiece]) -> Any:
        """The same in this format."""
        ops = self.placement.ops
        return self._kept("weight", format, pieces, lambda: ops.pack([self.matrix(*piece) for piece in pieces], format))

    def packed_experts(self, experts: list[list[CheckpointPiece]]) -> Any:
        """The weights of many experts, read one after the other: the outputs of each are those of its pieces."""
        ops, format = self.placement.ops, self._format_of(experts[0][0])
        parts = ([self.matrix(*piece) for piece in pieces] for pieces in experts)
        pieces = [piece for pieces in experts for piece in pieces]
        return self._kept("experts", format, pieces, lambda: ops.pack_experts(parts, len(experts), format))

    def packed_cuts(self, piece: CheckpointPiece, cuts: Sequence[RowCut]) -> list[Any]:
        """A weight for each of these cuts of a piece."""
        ops, format = self.placement.ops, self._format_of(piece)
        read = lru_cache(1)(partial(self.matrix, *piece))  # not at all where all of them were kept

        def made(cut: RowCut) -> Any:
            return ops.pack([cut.of(read())], format)

        return [self._kept(f"weight {tuple(cut)}", format, [piece], partial(made, cut)) for cut in cuts]

    def packed_stack(
        self, layer: str, pieces: list[CheckpointPiece], parts: Callable[[], Iterable[list[WeightPart]]], count: int
    ) -> Any:
        """The weights of many experts that these pieces hold together, in the format that `layer` has."""
        ops, format = self.placement.ops, self.placement.formats.of(self.prefix + layer)
        if format.kind == "mxfp4" and len(pieces) == 1:  # floats after all
            format = self.placement.formats.own
        return self._kept("experts", format, pieces, lambda: ops.pack_experts(parts(), count, format))

    def adapters_of(self, pieces: list[CheckpointPiece]) -> Any | None:
        """Room for the adapters of a product whose outputs are those of these pieces, if there may be any."""
        if self.placement.adapters is None:
            return None
        return self.placement.adapters.room_for([piece._replace(name=self.prefix + piece.name) for piece in pieces])

    def table(self, piece: CheckpointPiece, format: WeightFormat) -> Any:
        """An embedding's table."""
        return self._kept("table", format, [piece], lambda: self.placement.ops.table(self.matrix(*piece), format))

    def _format_of(self, piece: CheckpointPiece) -> WeightFormat:
        return self.placement.formats.of((self.prefix + piece.name).removesuffix(".weight"))

    def vector(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """A tensor that meets the activations: a norm's weight, a bias. A copy: the file may be replaced
        while the model runs."""
        return self.read(name, shape, part).to(self.placement.device, self.placement.activations, copy=True)

    def exact_vector(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One in float32, whatever stands between the products."""
        return self.read(name, shape, None).to(self.placement.device, torch.float32, copy=True).flatten()

    def read(self, name: str, shape: tuple[int, ...], part: Part | None) -> Tensor:
        """A tensor in its own number format. It may be a view of the file."""
        return self.source.read(self.prefix + name, shape, part)

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None) -> Tensor:
        """One of bytes that are no numbers by themselves. It may be a view of the file."""
        return self.source.octets(self.prefix + name, shape, part)

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


class Checkpoint:
    """The safetensors files of a model folder; `config` tells how tensors that others fuse are divided."""

    def __init__(
        self,
        folder: Path,
        quantization: Quantization | None = None,
        config: ModelConfig | None = None,
        find_layout: FindLayout = layout_of,
    ) -> None:
        self.folder = folder
        self.quantization = quantization
        self.bytes_read = 0
        self._files = MappedFiles(folder)
        self._file_of = self._indexed()
        self._layout = find_layout(self._file_of, config)
        self._stored_name = self._layout.names(self._file_of)
        self._used: set[str] = set()

    @property
    def names(self) -> Iterable[str]:
        return self._stored_name

    def has(self, name: str) -> bool:
        return name in self._stored_name

    def read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        """The tensor `name`, which must have `shape`, or a part of it; in the checkpoint's own number format."""
        tensor = self.shaped(name, shape)[index_of(part)]
        if tensor.dtype not in _FLOATS:
            raise ConfigError(f"{name} is stored as {tensor.dtype}. Use a float32, float16 or bfloat16 checkpoint.")
        self._count(tensor.nbytes)
        return tensor

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> WeightPart:
        module = _StoredModule(self, name.removesuffix(".weight"))
        if not is_quantized(module, self.quantization):
            return self.read(name, shape, part)
        found = read_part(module, Share.of(shape, part), self.quantization)
        self.pass_over(name)
        self._count(found.nbytes)
        return found

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Tensor:
        octets: Tensor = self.shaped(name, shape)[index_of(part)]
        if octets.dtype != torch.uint8:
            raise ConfigError(f"{name} is stored as {octets.dtype}, and should be uint8. Download the model again.")
        self._count(octets.nbytes)
        return octets

    def group_size(self, module: str) -> int:
        stored = _StoredModule(self, module)
        return self.quantization.group_size_of(module) if self.quantization and is_in_groups(stored) else 0

    def pass_over(self, name: str) -> None:
        module = name.removesuffix("weight")
        self._used.update((name, *(module + companion for companion in COMPANIONS)))

    def shaped(self, name: str, shape: tuple[int, ...]) -> Any:
        """A tensor in its file that must have this shape, to be sliced."""
        stored = self.stored(name)
        if tuple(stored.get_shape()) != shape:
            raise ConfigError(self._misshapen(name, tuple(stored.get_shape()), shape))
        return stored

    def stored(self, name: str) -> Any:
        """A tensor in its file, to be sliced."""
        if name not in self._stored_name:
            raise ConfigError(f"{self.folder} holds no tensor {name}, which this model's config.json asks for.")
        self._used.add(name)
        stored = self._stored_name[name]
        file = self._file_of[stored]
        try:
            return self._layout.view(name, self._files.mapped(file).get_slice(stored))
        except SafetensorError as error:  # an index of other files than these
            raise ConfigError(f"{self.folder / file} holds no tensor {stored}, which its index names.") from error

    def leftovers(self) -> list[str]:
        """What no layer asked for."""
        return sorted(set(self._stored_name) - self._used)

    def _indexed(self) -> dict[str, str]:
        """The file of each tensor."""
        index = self.folder / "model.safetensors.index.json"
        try:
            found = read_model_json(index)
        except FileNotFoundError:
            files = [path.name for path in own_weight_files(self.folder)]
            if not files:
                raise ModelNotFoundError(self._no_weights()) from None
            return {name: file for file in files for name in self._files.mapped(file).keys()}  # noqa: SIM118
        try:
            return {str(name): _plain_name(file) for name, file in found["weight_map"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{index} is no index of safetensors files: {error}") from error

    def _count(self, nbytes: int) -> None:
        self.bytes_read += nbytes
        self._files.count(nbytes)

    def _misshapen(self, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
        file = self.folder / self._file_of[self._stored_name[name]]
        text = f"{name} in {file} has shape {found}, and config.json asks for {wanted}."
        if found == wanted[::-1]:
            text += " It is transposed, as Paddle writes it, and under a name of Hugging Face's: convert it again."
        return text

    def _no_weights(self) -> str:
        foreign = sorted(path.name for path in self.folder.glob("*") if path.suffix in _FOREIGN)
        hint = f" {foreign[0]} is there, but only safetensors are read." if foreign else ""
        return f"{self.folder} holds no safetensors file.{hint}"


@dataclass(frozen=True)
class _StoredModule:
    """The tensors of one projection, in the files of a checkpoint."""

    checkpoint: Checkpoint
    name: str

    def has(self, tensor: str) -> bool:
        return self.checkpoint.has(f"{self.name}.{tensor}")

    def shape(self, tensor: str) -> tuple[int, ...]:
        return tuple(self.checkpoint.stored(f"{self.name}.{tensor}").get_shape())

    def tensor(self, tensor: str, *spans: tuple[int, int]) -> Tensor:
        return self.checkpoint.stored(f"{self.name}.{tensor}")[tuple(slice(*span) for span in spans) or ...]


def _described(pieces: list[CheckpointPiece]) -> str:
    """Which these are; of very many the first, the last and a digest."""
    text = str([tuple(piece) for piece in pieces])
    if len(pieces) <= _NAMED_PIECES:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{tuple(pieces[0])} to {tuple(pieces[-1])} {digest}"


def _plain_name(file: Any) -> str:
    """A file in the model's own folder, nothing outside of it."""
    if not isinstance(file, str) or Path(file).name != file:
        raise ValueError(f"{file!r} is not the name of a file in this folder")
    return file
