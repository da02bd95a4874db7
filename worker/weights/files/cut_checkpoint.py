"""Reads one rank's share of a checkpoint that was divided among ranks during conversion.

`pieces.json` in the rank's folder records which piece of the whole each tensor is. Layers ask for a part of a tensor,
as in any checkpoint, and get the stored piece, which must be that part.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ....kernels.arrays import Array
from ....kernels.stored.parts import WeightPart
from ....protocol.errors import ConfigError
from ....protocol.files.model_file import read_model_file
from ...description.quantization import Quantization
from ..piece import CheckpointPiece, Part
from .checkpoint import Checkpoint
from .weight_files import rank_folder

_PIECES = "pieces.json"


class CutCheckpoint:
    """Replaces the whole `Checkpoint` on one of `size` ranks."""

    def __init__(self, folder: Path, quantization: Quantization | None, rank: int, size: int) -> None:
        self.folder = folder / rank_folder(rank, size)
        self._pieces = {piece.name: piece for piece in read_pieces(self.folder)}
        self._own = Checkpoint(self.folder, quantization)

    @property
    def bytes_read(self) -> int:
        return self._own.bytes_read

    @property
    def names(self) -> Iterable[str]:
        return self._own.names

    def has(self, name: str) -> bool:
        return self._own.has(name)

    def read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        return self._own.read(name, *self._stored(CheckpointPiece(name, shape, part)))

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> WeightPart:
        return self._own.matrix(name, *self._stored(CheckpointPiece(name, shape, part)))

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        return self._own.octets(name, *self._stored(CheckpointPiece(name, shape, part)))

    def group_size(self, module: str) -> int:
        """Ranks divide evenly."""
        return 0

    def pass_over(self, name: str) -> None:
        self._own.pass_over(name)

    def leftovers(self) -> list[str]:
        return self._own.leftovers()

    def _stored(self, wanted: CheckpointPiece) -> tuple[tuple[int, ...], Part | None]:
        """The stored piece's shape, and the wanted part of it, if not all."""
        stored = self._pieces.get(wanted.name)
        if stored == CheckpointPiece(wanted.name, wanted.shape):  # stored whole, because several parts are needed
            return wanted.shape, wanted.part
        if stored != wanted:
            there = "nothing" if stored is None else f"{stored.part or 'all'} of {stored.shape}"
            raise ConfigError(
                f"{self.folder} holds {there} of {wanted.name}, and this rank's layers want {wanted.part or 'all'} of "
                f"{wanted.shape} (dimension, first, last + 1). It was made for another config.json or another version "
                "of Penstock: convert the original again."
            )
        return wanted.part_shape, None


def read_pieces(folder: Path) -> list[CheckpointPiece]:
    path = folder / _PIECES
    try:
        return msgspec.json.decode(read_model_file(path), type=list[CheckpointPiece])
    except (FileNotFoundError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{folder} should hold one rank's weights with a list of them, {_PIECES}, which cannot be read: {error}. "
            "Copy the converted folder again as a whole, or convert the original again."
        ) from error


def write_pieces(folder: Path, pieces: list[CheckpointPiece]) -> None:
    lines = ",\n".join(msgspec.json.encode(piece).decode() for piece in pieces)
    (folder / _PIECES).write_text(f"[\n{lines}\n]\n", encoding="utf-8")
