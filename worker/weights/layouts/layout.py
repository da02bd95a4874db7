"""The interface of a checkpoint layout, which shows tensors under the names and in the shapes that layers ask for."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ....kernels.arrays import Array, DType
from ...description.config import ModelConfig


class Sliceable(Protocol):
    """A tensor in its file: an array, or what gives one when it is sliced."""

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, index: Any, /) -> Array: ...


class Layout(Protocol):
    """Shows the tensors of a checkpoint's files to layers."""

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        """Stored names by the names that layers ask for; several may share one stored tensor."""

    def view(self, name: str, stored: Array) -> Sliceable:
        """The layers' view of a tensor in its file, of which nothing is read before it is sliced."""


# Finds the layout of tensors with these names.
FindLayout = Callable[[Iterable[str], ModelConfig | None], Layout]
