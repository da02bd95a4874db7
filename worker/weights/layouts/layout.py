"""The interface of a checkpoint layout, which shows tensors under the names and in the shapes that layers ask for."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ...description.config import ModelConfig


class Layout(Protocol):
    """Shows the tensors of a checkpoint's files to layers."""

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        """Stored names by the names that layers ask for; several may share one stored tensor."""

    def view(self, name: str, stored: Any) -> Any:
        """The layers' view of a tensor in its file; like a slice of safetensors."""


# Finds the layout of tensors with these names.
FindLayout = Callable[[Iterable[str], ModelConfig | None], Layout]
