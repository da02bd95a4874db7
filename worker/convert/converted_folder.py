"""The folder of a converted model, or of one rank's share of it, while it is written.

It gets quantized rows of the source's tensors in any order, and writes those that belong to it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import overload

from ...kernels.arrays import Array
from ...kernels.stored.quantized import QuantizedPart
from ..weights.files.cut_checkpoint import write_pieces
from .compressed_writer import written_rows
from .conversion_plan import TargetFolder
from .safetensors_file import SafetensorsFile


class ConvertedFolder:
    """Open until closed."""

    def __init__(self, folder: Path, planned: TargetFolder) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.planned = planned
        self._files = [
            SafetensorsFile(folder / name, tensors)
            for name, tensors in zip(planned.file_names, planned.files, strict=True)
        ]
        self._file_of = {tensor: file for file in self._files for tensor in file.tensors}

    def holds(self, name: str) -> bool:
        return name in self.planned.pieces

    def whole(self, name: str, tensor: Array) -> None:
        written = self.planned.written_names[name]
        self._file_of[written].rows(written, tensor)

    def rows(self, name: str, rows: Array | QuantizedPart, first: int) -> None:
        """Write this folder's part of the source's rows from `first` on."""
        piece = self.planned.pieces[name]
        dim, start, end = piece.part or (0, 0, piece.shape[0])
        if dim:
            self._write(name, cut(rows, dim, start, end), first)
            return
        length = len(rows.values if isinstance(rows, QuantizedPart) else rows)
        low, high = max(first, start), min(first + length, end)
        if low < high:
            self._write(name, cut(rows, 0, low - first, high - first), low - start)

    def close(self) -> None:
        """Flush everything to the disk."""
        for name, piece in self.planned.pieces.items():
            shape = self.planned.written_names[name].removesuffix("weight") + "weight_shape"
            if shape in self._file_of:
                self._file_of[shape].whole(shape, list(piece.part_shape))
        for file in self._files:
            file.close()
        if len(self._files) > 1:
            self._write_index()
        if any(piece.part for piece in self.planned.pieces.values()):  # a whole model needs no list
            write_pieces(self.folder, list(self.planned.pieces.values()))

    def _write(self, name: str, rows: Array | QuantizedPart, first: int) -> None:
        name = self.planned.written_names[name]
        if isinstance(rows, QuantizedPart):
            module = name.removesuffix("weight")
            made = {module + part: each for part, each in written_rows(rows).items()}
        else:
            made = {name: rows}
        for each, tensor in made.items():
            self._file_of[each].rows(each, tensor, first)

    def _write_index(self) -> None:
        files = zip(self.planned.file_names, self.planned.files, strict=True)
        weight_map = {tensor: name for name, tensors in files for tensor in tensors}
        index = {"metadata": {"total_size": self.planned.nbytes}, "weight_map": weight_map}
        write_json(self.folder / "model.safetensors.index.json", index)


@overload
def cut(rows: Array, dim: int, first: int, last: int) -> Array: ...
@overload
def cut(rows: QuantizedPart, dim: int, first: int, last: int) -> QuantizedPart: ...
def cut(rows: Array | QuantizedPart, dim: int, first: int, last: int) -> Array | QuantizedPart:
    """Cut the entries from first to last + 1 of dimension `dim`; grouped inputs are cut only between groups."""
    if not isinstance(rows, QuantizedPart):
        return rows[(slice(None),) * dim + (slice(first, last),)]
    group = rows.group_size if dim == 1 else 1
    scales = cut(rows.scales, dim, first // group, -(-last // group))
    return replace(rows, values=cut(rows.values, dim, first, last), scales=scales)


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
