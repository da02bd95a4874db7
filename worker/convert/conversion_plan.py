"""Plans a conversion: which tensors of the source, whole or in a rank's pieces, go into which files.

It works on names and shapes and reads no weights. The caller says which pieces a rank holds.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open

from ...protocol.conversion import Conversion
from ...protocol.errors import ConfigError
from ...protocol.files.model_file import require_regular
from ..models.config import ModelConfig
from ..models.products import HEAD, quantized_kinds
from ..weights.piece import CheckpointPiece
from ..weights.tensor_names import layer_names
from ..weights.weight_files import own_weight_files, rank_folder
from .compressed_writer import planned_tensors
from .safetensors_file import DTYPES, TensorSpec

_LARGEST_FILE = 5 << 30  # as others cut theirs
_GROUP_SIZES = (32, 64, 128)

TargetFile = dict[str, TensorSpec]  # one safetensors file to be
Pieces = dict[str, CheckpointPiece]  # by the source's names


class StoredTensor(NamedTuple):
    """A tensor of the source."""

    name: str  # as layers ask for it
    stored_name: str
    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    kind: str | None = None  # int8 or int4, where it is to be quantized

    @property
    def nbytes(self) -> int:
        return TensorSpec(self.dtype, self.shape).nbytes

    @property
    def is_linear(self) -> bool:
        """Whether it is the matrix of what compressed-tensors calls a Linear."""
        return self.name == f"{HEAD}.weight" or (self.name.startswith("model.layers.") and _is_matrix(self))


@dataclass
class TargetFolder:
    """A set of files to be: the whole model, or what one rank holds of it."""

    name: str  # within the target
    pieces: Pieces = field(default_factory=dict)
    files: list[TargetFile] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(map(size_of, self.files))

    @property
    def file_names(self) -> list[str]:
        count = len(self.files)
        if count == 1:
            return ["model.safetensors"]
        return [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]

    def add(self, piece: CheckpointPiece, tensors: TargetFile) -> None:
        """What a piece of the source becomes."""
        if not self.files or (self.files[-1] and size_of(self.files[-1]) + size_of(tensors) > _LARGEST_FILE):
            self.files.append({})
        self.files[-1] |= tensors
        self.pieces[piece.name] = piece


def _is_matrix(tensor: StoredTensor) -> bool:
    return tensor.name.endswith(".weight") and len(tensor.shape) == 2


def size_of(file: TargetFile) -> int:
    return sum(planned.nbytes for planned in file.values())


def kinds_of_tensors(config: ModelConfig, asked: Conversion) -> dict[str, str]:
    """int8 or int4 of each tensor that is to be quantized. The head stays as it is, for engines that want it so."""
    kinds = quantized_kinds(config, asked.quantization)
    return {f"{layer}.weight": kind.removeprefix("w") for layer, kind in kinds.items() if kind and layer != HEAD}


def stored_tensors(folder: Path, kinds: dict[str, str]) -> list[StoredTensor]:
    """All of the source, by file and name."""
    found = []
    for path in own_weight_files(folder):
        require_regular(path)
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                view = file.get_slice(name)
                found.append(StoredTensor(name, name, path, DTYPES[view.get_dtype()], tuple(view.get_shape())))
    name_of = {stored: name for name, stored in layer_names(each.stored_name for each in found).items()}
    named = [each._replace(name=name_of[each.stored_name]) for each in found]
    return [each._replace(kind=kinds.get(each.name)) for each in named]


def planned_folders(stored: list[StoredTensor], asked: Conversion, by_rank: list[Pieces]) -> list[TargetFolder]:
    """One for each rank with its pieces, where the target is to be cut, else one with all of the source."""
    wanted = {".": {source.name: CheckpointPiece(source.name, source.shape) for source in stored}}
    if asked.is_cut:
        wanted = {rank_folder(rank, len(by_rank)): pieces for rank, pieces in enumerate(by_rank)}
    folders = []
    for name, pieces in wanted.items():
        folder = TargetFolder(name)
        for source in stored:
            if piece := pieces.get(source.name):
                folder.add(piece, _planned(source, piece, asked))
        folders.append(folder)
    return folders


def _planned(source: StoredTensor, piece: CheckpointPiece, asked: Conversion) -> TargetFile:
    if source.kind is None:
        return {source.name: TensorSpec(source.dtype, piece.part_shape)}
    module = source.name.removesuffix("weight")
    rows, inputs = piece.part_shape
    made = planned_tensors(source.kind, (rows, inputs), asked.group_size)
    return {module + name: TensorSpec(*planned) for name, planned in made.items()}


def check_groups(by_rank: list[Pieces], kinds: dict[str, str], asked: Conversion) -> None:
    """Refuse groups that don't divide the inputs of every rank, and say which do."""
    names = {name for name, kind in kinds.items() if kind == "int4"}
    widths = {piece.part_shape[1] for pieces in by_rank for piece in pieces.values() if piece.name in names}
    if not widths:
        return
    if all(width % asked.group_size == 0 for width in widths) and asked.group_size in _GROUP_SIZES:
        return
    fitting = [size for size in _GROUP_SIZES if all(width % size == 0 for width in widths)]
    way_out = f"Use {' or '.join(map(str, fitting))}." if fitting else "None of 32, 64 and 128 does; use int8."
    among = f" on each of {len(by_rank)} ranks" if len(by_rank) > 1 else ""
    raise ConfigError(
        f"group_size={asked.group_size} is no size that the kernels have and that divides the projections' inputs"
        f"{among}, {', '.join(f'{width:,}' for width in sorted(widths))}. {way_out}"
    )
