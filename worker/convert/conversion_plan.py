"""Plans a conversion: which tensors of the source, whole or in a rank's pieces, go into which files.

It works on names and shapes and reads no weights. The caller says which pieces a rank holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open

from ...protocol.conversion import Conversion
from ...protocol.errors import ConfigError
from ...protocol.files.model_file import require_regular
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

    @property
    def nbytes(self) -> int:
        return TensorSpec(self.dtype, self.shape).nbytes

    @property
    def is_projection(self) -> bool:
        return is_projection(self.name)


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


def is_projection(name: str) -> bool:
    """What compressed-tensors calls a Linear, the head left out."""
    return name.startswith("model.layers.") and name.endswith("_proj.weight")


def size_of(file: TargetFile) -> int:
    return sum(planned.nbytes for planned in file.values())


def stored_tensors(folder: Path) -> list[StoredTensor]:
    """All of the source, by file and name."""
    found = []
    for path in own_weight_files(folder):
        require_regular(path)
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                view = file.get_slice(name)
                found.append(StoredTensor(name, name, path, DTYPES[view.get_dtype()], tuple(view.get_shape())))
    name_of = {stored: name for name, stored in layer_names(each.stored_name for each in found).items()}
    return [each._replace(name=name_of[each.stored_name]) for each in found]


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
    if not source.is_projection:
        return {source.name: TensorSpec(source.dtype, piece.part_shape)}
    module = source.name.removesuffix("weight")
    rows, inputs = piece.part_shape
    made = planned_tensors(asked.kind, (rows, inputs), asked.group_size)
    return {module + name: TensorSpec(*planned) for name, planned in made.items()}


def check_groups(by_rank: list[Pieces], asked: Conversion) -> None:
    """Refuse groups that don't divide the inputs of every rank, and say which do."""
    if asked.kind != "int4":
        return
    widths = set(_input_widths(by_rank))
    if all(width % asked.group_size == 0 for width in widths) and asked.group_size in _GROUP_SIZES:
        return
    fitting = [size for size in _GROUP_SIZES if all(width % size == 0 for width in widths)]
    way_out = f"Use {' or '.join(map(str, fitting))}." if fitting else "None of 32, 64 and 128 does; use int8."
    among = f" on each of {len(by_rank)} ranks" if len(by_rank) > 1 else ""
    raise ConfigError(
        f"group_size={asked.group_size} is no size that the kernels have and that divides the projections' inputs"
        f"{among}, {', '.join(f'{width:,}' for width in sorted(widths))}. {way_out}"
    )


def _input_widths(by_rank: list[Pieces]) -> Iterator[int]:
    for pieces in by_rank:
        yield from (piece.part_shape[1] for piece in pieces.values() if is_projection(piece.name))
