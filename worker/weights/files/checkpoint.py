"""The tensors of a model folder's safetensors files, under the names and in the shapes that layers ask for.

Reads are lazy and sliced. A quantized matrix is returned as it is stored.
"""

from collections.abc import Iterable
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy

from ....kernels import DTYPES
from ....kernels.arrays import Array
from ....kernels.stored.parts import WeightPart
from ....protocol.errors import ConfigError, ModelNotFoundError
from ....protocol.files.model_file import read_model_json
from ....records import dataclass
from ...description.config import ModelConfig
from ...description.quantization import Quantization
from ..layouts.find_layout import layout_of
from ..layouts.layout import FindLayout, Sliceable
from ..layouts.tensor_names import is_paddles
from ..piece import Part, index_of
from ..quantized import COMPANIONS, Share, is_in_groups, is_quantized, read_part
from .mapped_safetensors import Header, MappedSafetensors
from .mappings import Mappings
from .weight_files import own_weight_files

_FOREIGN = (".bin", ".pt", ".pth", ".gguf", ".pdparams", ".distcp")  # other formats' weights


class Checkpoint:
    """The safetensors files of a model folder; `config` tells how to divide fused tensors."""

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
        self._files = Mappings(partial(_map, {}))
        self._file_of = self._indexed()
        self._layout = find_layout(self._file_of, config)
        self._stored_name = self._layout.names(self._file_of)
        self._used: set[str] = set()

    @property
    def names(self) -> Iterable[str]:
        return self._stored_name

    def has(self, name: str) -> bool:
        return name in self._stored_name

    def read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        """Read the tensor `name`, which must have `shape`, or a part of it; in the checkpoint's own number format."""
        tensor = self.shaped(name, shape)[index_of(part)]
        if tensor.dtype not in DTYPES.values():
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

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        octets = self.shaped(name, shape)[index_of(part)]
        if octets.dtype != numpy.uint8:
            raise ConfigError(f"{name} is stored as {octets.dtype}, and should be uint8. Download the model again.")
        self._count(octets.nbytes)
        return octets

    def group_size(self, module: str) -> int:
        stored = _StoredModule(self, module)
        return self.quantization.group_size_of(module) if self.quantization and is_in_groups(stored) else 0

    def pass_over(self, name: str) -> None:
        module = name.removesuffix("weight")
        self._used.update((name, *(module + companion for companion in COMPANIONS)))

    def shaped(self, name: str, shape: tuple[int, ...]) -> Sliceable:
        """Find a tensor of this shape in its file, to be sliced."""
        stored = self.stored(name)
        if stored.shape != shape:
            raise ConfigError(self._misshapen(name, stored.shape, shape))
        return stored

    def stored(self, name: str) -> Sliceable:
        """Find a tensor in its file, to be sliced."""
        if name not in self._stored_name:
            raise ConfigError(f"{self.folder} holds no tensor {name}, which this model's config.json asks for.")
        self._used.add(name)
        stored = self._stored_name[name]
        file = self._mapped(self._file_of[stored])
        if stored not in file.names:  # the index belongs to other files
            raise ConfigError(f"{file.path} holds no tensor {stored}, which its index names.")
        return self._layout.view(name, file.array(stored))

    def leftovers(self) -> list[str]:
        """The tensors that no layer asked for."""
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
            return {name: file for file in files for name in self._mapped(file).names}
        try:
            return {str(name): _plain_name(file) for name, file in found["weight_map"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{index} is no index of safetensors files: {error}") from error

    def _mapped(self, file: str) -> MappedSafetensors:
        try:
            return self._files.of(self.folder / file)
        except FileNotFoundError as error:
            raise ModelNotFoundError(f"{self.folder / file} is listed in the index but missing.") from error

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
        return self.checkpoint.stored(f"{self.name}.{tensor}").shape

    def tensor(self, tensor: str, *spans: tuple[int, int]) -> Array:
        return self.checkpoint.stored(f"{self.name}.{tensor}")[tuple(slice(*span) for span in spans) or ...]


def _plain_name(file: Any) -> str:
    """Check that a name is a file directly in the model's folder."""
    if not isinstance(file, str) or Path(file).name != file:
        raise ValueError(f"{file!r} is not the name of a file in this folder")
    return file


def _map(headers: dict[Path, Header], path: Path, file: BufferedReader) -> MappedSafetensors:
    """Map a file; it is the same one each time, so its header is read once."""
    mapped = MappedSafetensors(path, file, headers.get(path))
    headers[path] = mapped.header
    if mapped.header.metadata.get("format") in ("pd", "paddle") and not is_paddles(mapped.names):
        raise ConfigError(
            f"{path} is in Paddle's own layout, of which only ERNIE-4.5's is read (ernie.*). Use the model as it is "
            "published for transformers."
        )
    return mapped
