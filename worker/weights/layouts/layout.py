"""What a layout of checkpoints does: it shows tensors under the names and in the shapes that layers ask for."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ...description.config import ModelConfig


class Layout(Protocol):
    """How the tensors of a checkpoint's files are shown to layers."""

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        """By the name that layers ask for, the stored one; several may lie in one stored tensor."""

    def view(self, name: str, stored: Any) -> Any:
        """A tensor in its file, as layers see it; like a slice of safetensors."""


# Which layout tensors of these names have.
FindLayout = Callable[[Iterable[str], ModelConfig | None], Layout]
