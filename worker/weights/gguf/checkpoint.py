"""The tensors of a model's GGUF files, under the names and in the shapes that layers ask for.

Blocks of ggml's types are returned as stored; small tensors are returned as floats, whatever their type.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ....kernels.arrays import Array
from ....kernels.stored.parts import WeightPart
from ....protocol.errors import ConfigError
from ....protocol.files.gguf.refusals import AGAIN, file_name
from ...description.config import ModelConfig
from ...description.linked_files import LinkedFiles
from ..piece import Part, index_of
from .tensors import GgufTensors, block_size
from .text_views import TensorNames, Views, add_text
from .views import Rows, View, fits
from .vision_views import add_vision


class GgufCheckpoint:
    """Replaces a `Checkpoint`: the files that a translated folder links to."""

    def __init__(self, folder: Path, files: LinkedFiles, config: ModelConfig) -> None:
        self.folder = folder
        self.bytes_read = 0
        # The encoder's file is only opened if the model has vision.
        self._tensors = GgufTensors(files if config.vision is not None else files._replace(encoder=None))
        self._views = views_of(self._tensors, config)
        self._used: set[str] = set()
        self._file = file_name(files.files[0])

    @property
    def names(self) -> Iterable[str]:
        return [*self._views, *self._unknown()]

    def has(self, name: str) -> bool:
        return name in self._views

    def read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        """Read the values of a tensor of this shape; dimensions of 1 don't count."""
        with self._of_one_model(name, shape):
            floats = self._view(name).floats(self._tensors.stored)
        if not fits(floats.shape, shape):
            raise ConfigError(self._misshapen(name, floats.shape, shape))
        found = floats.reshape(shape)[index_of(part)]
        self._count(found.nbytes)
        return found

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> WeightPart:
        """[outputs, inputs], in blocks if they are stored so and cut between blocks."""
        if len(shape) != 2:
            return self.read(name, shape, part)
        view, find = self._view(name), self._tensors.stored
        if not isinstance(view, Rows):
            return self.read(name, shape, part)
        if (whole := view.shape(find)) != shape:
            raise ConfigError(self._misshapen(name, whole, shape))
        with self._of_one_model(name, shape):
            found = view.matrix(find, part)
        self._count(found.nbytes)
        return found

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        raise ValueError(f"{name} is asked for as bytes, and {self._file} has numbers")

    def group_size(self, module: str) -> int:
        return block_size(self.type_of(module))

    def type_of(self, module: str) -> str:
        """The stored type of this projection's matrix; empty if it is computed from others, or absent."""
        view = self._views.get(f"{module}.weight")
        return self._tensors.type_of(view.tensor) if isinstance(view, Rows) else ""

    def pass_over(self, name: str) -> None:
        self._used.add(name)

    def leftovers(self) -> list[str]:
        """The tensors that no layer asked for; unknown ones have the file's own names."""
        return sorted({*self._views} - self._used) + self._unknown()

    def _unknown(self) -> list[str]:
        known = {tensor for view in self._views.values() for tensor in view.tensors}
        return sorted(name for name in self._tensors.names if name not in known)

    def _view(self, name: str) -> View:
        if name not in self._views:
            raise ConfigError(f"{self._file} holds no tensor for {name}, which its metadata asks for. {AGAIN}")
        self._used.add(name)
        return self._views[name]

    def _count(self, nbytes: int) -> None:
        self.bytes_read += nbytes
        self._tensors.count(nbytes)

    @contextmanager
    def _of_one_model(self, name: str, wanted: tuple[int, ...]) -> Iterator[None]:
        """Raise an error if a view's tensors lack rows or don't fit together."""
        try:
            yield
        except ConfigError:
            raise
        except (IndexError, ValueError) as error:
            own = " and ".join(f"{each} {self._tensors.shape(each)}" for each in self._views[name].tensors)
            raise ConfigError(
                f"{own} in {self._file} can't give {name} the shape {wanted}, which its metadata asks for. {AGAIN}"
            ) from error

    def _misshapen(self, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
        own = " and ".join(self._views[name].tensors)
        return f"{own} in {self._file} gives {name} the shape {found}, and its metadata asks for {wanted}. {AGAIN}"


def views_of(stored: TensorNames, config: ModelConfig) -> dict[str, View]:
    """The file's tensors, by the names that layers ask for."""
    views = Views(stored)
    add_text(views, config)
    if config.vision is not None:
        add_vision(views, config.vision)
    return views.found
