"""Finds which pieces of a model's tensors each rank holds, by building the model's layers.

A decoder (and an encoder, if any) is built for every rank on a source that records which tensors are read and returns
zeros that take no memory. So only the layers define how weights are divided. Reads names and shapes, no weights.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy

from ...kernels import Operations, WeightFormat
from ...kernels.arrays import FLOAT32, Array
from ...protocol.conversion import Conversion
from ..description.config import ModelConfig
from ..description.origin import origin_of
from ..description.split import check_split
from ..media.encoder import Encoder
from ..ranks.parallel import Parallel
from ..start.load import decoder_of
from ..weights.files.checkpoint import Checkpoint
from ..weights.layer_formats import LayerFormats
from ..weights.layouts.layout import FindLayout
from ..weights.layouts.tensor_names import check_unread
from ..weights.piece import CheckpointPiece, Part
from ..weights.quantized import COMPANIONS
from ..weights.weights import Placement, Weights


def rank_pieces(
    folder: Path, config: ModelConfig, asked: Conversion, find_layout: FindLayout
) -> list[dict[str, CheckpointPiece]]:
    """The pieces of each rank, by the tensors' names. Every rank has what is behind the rows of a pooled model."""
    size = asked.tensor_parallel_size
    check_split(config, size)
    checkpoint = Checkpoint(folder, config=config, find_layout=find_layout)
    by_rank = [_pulled(checkpoint, config, Parallel(rank, size), asked.pooling is not None) for rank in range(size)]
    if asked.pooling is not None:
        behind = [name for name in checkpoint.names if not name.startswith("model.")]
        whole = {name: CheckpointPiece(name, checkpoint.stored(name).shape) for name in behind}
        by_rank = [pieces | whole for pieces in by_rank]
    read = {name for pieces in by_rank for name in pieces}
    if config.quantization is not None:  # 8-bit floats: a matrix is read with its scales
        read |= {f"{name.removesuffix('weight')}{scales}" for name in read for scales in COMPANIONS}
    check_unread(origin_of(folder), sorted(set(checkpoint.names) - read), config)
    return by_rank


def _pulled(
    checkpoint: Checkpoint, config: ModelConfig, ranks: Parallel, is_pooled: bool
) -> dict[str, CheckpointPiece]:
    source, formats = _RecordingSource(checkpoint), LayerFormats(WeightFormat("fp32"))
    ops = cast(Operations[Any, Any], _NoOperations())
    placement = Placement(formats, FLOAT32, ops, ranks)
    decoder_of(Weights(source, placement), config, has_head=not is_pooled)
    if config.vision is not None:  # every rank has all of it
        Encoder(Weights(source, replace(placement, ranks=Parallel())), config.vision)
    return source.pieces


class _NoOperations:
    """What layers call while they are built; none of them is ever computed."""

    def pack(self, parts: list[Any], format: WeightFormat) -> None:
        """Nothing: the parts have been read."""

    def pack_experts(self, parts: Iterable[list[Any]], count: int, format: WeightFormat) -> None:
        for _ in parts:  # read one after another
            pass

    def fitting_experts(self, weights: Any, hidden: int) -> Any:
        return weights

    def table(self, part: Any, format: WeightFormat) -> None: ...

    def tied_weight(self, table: None, format: WeightFormat) -> None: ...

    def vector(self, array: Array) -> Array:
        return array

    exact_vector = vector


class _RecordingSource:
    """Replaces the checkpoint, and records what is read from it."""

    bytes_read = 0

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.pieces: dict[str, CheckpointPiece] = {}

    @property
    def names(self) -> Iterable[str]:
        return self.checkpoint.names

    def has(self, name: str) -> bool:
        return self.checkpoint.has(name)

    def read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        self.checkpoint.shaped(name, shape)  # raises if it is missing or has another shape
        piece = CheckpointPiece(name, shape, part)
        # Tensors that are read in several parts are kept whole.
        self.pieces[name] = piece if self.pieces.get(name, piece) == piece else CheckpointPiece(name, shape)
        return numpy.broadcast_to(numpy.float32(0), piece.part_shape)

    matrix = octets = read

    def group_size(self, module: str) -> int:
        """Ranks divide evenly; the new groups must divide each share (`check_groups`)."""
        return 0

    def pass_over(self, name: str) -> None:
        """Do nothing: no cached weights replace tensors here."""

    def leftovers(self) -> list[str]:
        return []
