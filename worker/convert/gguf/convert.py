"""Writes a model as one GGUF file, which llama.cpp and what is built on it read as well.

Tensors are read, quantized and written some rows at a time, on all cores. A model with vision loses its encoder. The
file appears under its name when it is complete.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy

from ....kernels.arrays import FLOAT32, Array
from ....protocol.conversion import Conversion, ConversionMessage, ConversionProgress, ConversionResult
from ....protocol.errors import ConfigError
from ...description.config import ModelConfig, read_config
from ...weights.files.checkpoint import Checkpoint
from ...weights.files.file_checks import check_weight_files
from ...weights.files.own_head import with_head_as_stored
from ...weights.files.weight_files import ranks_cut_for
from ...weights.layouts.separate_experts import layout_with_experts_apart
from ..conversion_plan import StoredTensor, stored_tensors
from ..target_path import appearing_file
from .blocks import quantized_rows
from .check_expressible import architecture_of, pooling_type
from .file_types import FILE_TYPES, FLOAT_FILE_TYPES, FileType, TypeChooser
from .gguf_file import GgufFile, GgufTensor, header_bytes
from .metadata import model_metadata
from .planned_tensors import PlannedTensor, planned_tensors
from .vocabulary import vocabulary_metadata

_PIECE_WEIGHTS = 1 << 20  # that a thread quantizes at once

Say = Callable[[ConversionMessage], None]


def convert_to_gguf(asked: Conversion, say: Say) -> ConversionResult:
    """Make the target file; raises `PenstockError`."""
    source, target = Path(asked.source), Path(asked.target)
    config = read_config(source, sees=False, is_pooled=asked.pooling is not None)
    check_weight_files(source)
    if ranks_cut_for(source):
        raise ConfigError(f"{source} is cut for ranks. Convert its original.")
    if asked.pooling is None:
        config = with_head_as_stored(config, source, Checkpoint(source, None, config).names)
    architecture = architecture_of(config)
    pooling = {} if asked.pooling is None else {f"{architecture.name}.pooling_type": pooling_type(asked.pooling)}
    stored = stored_tensors(source, config, {}, layout_with_experts_apart)
    tensors = planned_tensors(config, architecture, stored)
    file_type = _file_type(asked, config)
    planned = _typed(tensors, file_type, config)
    name = asked.model.rstrip("/").rpartition("/")[2] or source.name
    metadata = model_metadata(config, architecture, name, file_type.number) | pooling
    metadata |= vocabulary_metadata(Path(asked.tokenizer), source, config.vocab_size)
    before = sum(each.nbytes for tensor in tensors.values() for each in tensor.sources)
    after = sum(tensor.nbytes for tensor in planned.values())
    with appearing_file(target, after + header_bytes(metadata, planned)) as path:
        file = GgufFile(path, metadata, planned)
        _write(file, tensors, before, say)
        file.close()
    return ConversionResult(before, after)


def _file_type(asked: Conversion, config: ModelConfig) -> FileType:
    if asked.quantization is not None:
        return FILE_TYPES[asked.quantization]
    return FLOAT_FILE_TYPES.get(config.dtype, FLOAT_FILE_TYPES["float32"])


def _typed(tensors: dict[str, PlannedTensor], file_type: FileType, config: ModelConfig) -> dict[str, GgufTensor]:
    chooser = TypeChooser(
        file_type,
        num_layers=config.num_layers,
        num_experts=config.experts.num_experts if config.experts is not None else 0,
        has_own_head="output.weight" in tensors,
        shares_keys=config.heads[0].num_kv_heads < config.num_heads,
    )
    return {name: GgufTensor(chooser.type_of(name, tensor.shape), tensor.shape) for name, tensor in tensors.items()}


def _write(file: GgufFile, tensors: dict[str, PlannedTensor], total: int, say: Say) -> None:
    """Quantize pieces in one thread per core."""
    done, cores = 0, len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as pool:
        for name, tensor in tensors.items():
            pieces = list(_pieces(tensor))

            def write(piece: _Piece, name: str = name) -> int:
                octets = quantized_rows(piece.rows(name), file.tensors[name].type.name)
                file.rows(name, octets, piece.at)
                if piece.source is not None:
                    piece.source.file.release()
                return piece.nbytes

            for nbytes in pool.map(write, pieces):
                done += nbytes
                say(ConversionProgress(done, total))


class _Piece(NamedTuple):
    """Rows of one tensor of the model, or values that are written unchanged."""

    tensor: PlannedTensor
    source: StoredTensor | None
    first: int  # rows of the source
    last: int
    at: int  # first row in the file's tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the source."""
        source = self.source
        return 0 if source is None else source.nbytes * (self.last - self.first) // source.shape[0]

    def rows(self, name: str) -> Array:
        """[rows, inputs] in the file's form; a vector is one row."""
        if self.source is None:
            return self._numbers[None]
        rows = self.source.view()[self.first : self.last]
        if not numpy.isfinite(rows).all():
            raise ConfigError(
                f"{self.source.name} holds NaN or infinity, so {name} can't be written from it. Download the model "
                "again as a whole."
            )
        rows = rows.astype(FLOAT32) + FLOAT32.type(self.tensor.added) if self.tensor.added else rows
        if size := self.tensor.head_dim:
            rows = rows.reshape(-1, 2, size // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
        return rows[None] if len(self.tensor.shape) == 1 and rows.ndim == 1 else rows

    @property
    def _numbers(self) -> Array:
        if self.tensor.values is None:
            raise ValueError("a planned tensor has neither sources nor values")
        return self.tensor.values


def _pieces(tensor: PlannedTensor) -> Iterator[_Piece]:
    if not tensor.sources:
        yield _Piece(tensor, None, 0, 0, 0)
        return
    unit, at = max(1, tensor.head_dim), 0
    for source in tensor.sources:
        num_rows = source.shape[0]
        step = num_rows if len(source.shape) == 1 else max(1, _PIECE_WEIGHTS // source.shape[1] // unit) * unit
        for first in range(0, num_rows, step):
            yield _Piece(tensor, source, first, min(first + step, num_rows), at + first)
        at += num_rows
