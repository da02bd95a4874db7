"""The tensors of GGUF files, each a view of its file, which is mapped into memory (`../files/mappings.py`)."""

import mmap
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy

from ....kernels.arrays import BFLOAT16, FLOAT16, FLOAT32, Array
from ....kernels.stored.ggml import GgmlPart
from ....kernels.stored.ggml_blocks import TYPES
from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....protocol.files.gguf.header import read_header
from ....protocol.files.gguf.parts import PlacedTensor, read_model
from ....protocol.files.gguf.refusals import file_name
from ....protocol.files.gguf.types import BY_NAME
from ....records import dataclass
from ...description.linked_files import LinkedFiles
from ..files.mappings import Mappings

FLOATS = {"F32": FLOAT32, "F16": FLOAT16, "BF16": BFLOAT16, "F64": numpy.dtype(numpy.float64)}


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """One tensor in its file."""

    name: str
    type: str  # one of ggml's
    shape: tuple[int, ...]  # outputs first, inputs last
    octets: Array  # uint8 [rows, bytes of a row]

    @property
    def in_blocks(self) -> bool:
        return self.type in TYPES

    def rows(self, chosen: slice | Array) -> Array | GgmlPart:
        """[rows, inputs] of these rows; all dimensions but the last count as rows."""
        octets = self.octets[chosen]
        if self.in_blocks:
            return GgmlPart(self.type, octets)
        if self.type not in FLOATS:
            raise ConfigError(
                f"{self.name} is stored as {self.type}, which no weights are read from. Use a file with "
                f"{', '.join((*FLOATS, *TYPES))}."
            )
        floats = octets.view(FLOATS[self.type])
        return floats.astype(FLOAT32) if self.type == "F64" else floats

    def floats(self) -> Array:
        """The whole tensor as floats, in its own shape."""
        found = self.rows(slice(None))
        return (found.dequantized() if isinstance(found, GgmlPart) else found).reshape(self.shape)


class GgufTensors:
    """The tensors of a model's files, including its encoder's, if any."""

    def __init__(self, files: LinkedFiles) -> None:
        model = read_model(files.files)
        self.metadata: Mapping[str, Any] = model.metadata
        self._placed = model.tensors
        if files.encoder is not None:
            infos = read_header(files.encoder).tensors
            if shared := [info.name for info in infos if info.name in self._placed]:
                raise ConfigError(
                    f"{file_name(files.encoder)} has {shown(shared[0])}, as {file_name(files.files[0])} has: it is no "
                    "encoder of this model. Download it again, or start with enable_mm=False."
                )
            self._placed |= {info.name: PlacedTensor(files.encoder, info) for info in infos}
        self._mappings = Mappings(_map)

    @property
    def names(self) -> Iterable[str]:
        return self._placed

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def has(self, name: str) -> bool:
        return name in self._placed

    def shape(self, name: str) -> tuple[int, ...]:
        """Outputs first; empty where there is no such tensor."""
        return self._placed[name].info.shape if name in self._placed else ()

    def type_of(self, name: str) -> str:
        return self._placed[name].info.type

    def stored(self, name: str) -> StoredTensor:
        file, info = self._placed[name]
        mapped = self._mappings.of(file)
        if len(mapped) < info.offset + info.nbytes:
            raise ConfigError(f"{file_name(file)} was cut short since its header was read. Download it again.")
        octets = numpy.frombuffer(mapped, numpy.uint8, info.nbytes, info.offset)
        width = BY_NAME[info.type].nbytes(info.shape[-1]) if info.shape else info.nbytes
        return StoredTensor(name, info.type, info.shape, octets.reshape(-1, width))

    def count(self, nbytes: int) -> None:
        """Count bytes read from the mapped files."""
        self._mappings.count(nbytes)


def _map(_: Path, file: BufferedReader) -> mmap.mmap:
    return mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)


def block_size(type: str) -> int:
    """Neighbouring inputs that share a block; 0: each is a separate number."""
    return TYPES[type].block if type in TYPES else 0
