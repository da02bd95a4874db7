"""A LoRA adapter in llama.cpp's format: one GGUF file with `….lora_a` and `….lora_b` for the name of each tensor.

Names and the order of a matrix's rows are those of the model's own GGUF file, whatever file the model was loaded from.
Everything is checked before anything is read, as for PEFT's adapters (`lora_files.py`).
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy

from ...kernels.arrays import FLOAT32, Array
from ...protocol.errors import AdapterError, ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.gguf.refusals import file_name
from ..description.linked_files import LinkedFiles
from ..weights.gguf.tensors import GgufTensors, StoredTensor
from ..weights.gguf.text_views import TensorNames
from ..weights.gguf.views import Columns, Rows, View
from ..weights.piece import Part
from .lora_files import Target, check_module

FindViews = Callable[[TensorNames], dict[str, View]]
_DOWN, _UP = ".lora_a", ".lora_b"
_ALPHA = "adapter.lora.alpha"
_MERGE = "Load the model with it merged in."


class _Changed:
    """The names of the tensors that the adapter changes, as if the file contained them."""

    def __init__(self, tensors: GgufTensors) -> None:
        self._tensors = tensors
        self.names = [name.removesuffix(_DOWN) for name in tensors.names if name.endswith(_DOWN)]

    @property
    def architecture(self) -> str:
        return self._tensors.architecture

    def has(self, name: str) -> bool:
        return self._tensors.has(name + _DOWN) and self._tensors.has(name + _UP)

    def shape(self, name: str) -> tuple[int, ...]:
        return (*self._tensors.shape(name + _UP)[:1], *self._tensors.shape(name + _DOWN)[-1:])


class GgufAdapter:
    """`modules` names the projections that the adapter changes."""

    def __init__(self, path: Path, targets: Mapping[str, Target], max_rank: int, find_views: FindViews) -> None:
        self._name = file_name(path)
        self._tensors = _opened(path)
        _check_metadata(self._name, self._tensors)
        self._views = self._checked_views(find_views)
        for module in self.modules:
            check_module(self._name, module, *self._shapes(module), targets, max_rank)

    @property
    def modules(self) -> list[str]:
        return list(self._views)

    def read(self, module: str, part: Part | None) -> tuple[Array, Array]:
        """`down` [rank, in] and `up` [out, rank] with the adapter's scale, both float32, for a part of the weight."""
        view = self._views[module]
        down, up = (_floats(self._tensors.stored(view.tensor + half)) for half in (_DOWN, _UP))
        if isinstance(view, Columns):
            down = down[:, view.order]
        else:
            up = up[view.chosen]
        dim, *span = part or (None,)
        down = down[:, slice(*span)] if dim == 1 else down
        up = up[slice(*span)] if dim == 0 else up
        return down, up * numpy.float32(self._scale(len(down)))

    def _scale(self, rank: int) -> float:
        alpha: float = self._tensors.metadata.get(_ALPHA, 0.0)
        return alpha / rank if alpha else 1.0

    def _shapes(self, module: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of `down`, and of this module's rows of `up`."""
        view = self._views[module]
        down, up = (self._tensors.shape(view.tensor + half) for half in (_DOWN, _UP))
        if isinstance(view, Rows) and len(up) == 2:
            chosen = view.chosen
            if isinstance(chosen, slice):
                up = len(range(*chosen.indices(up[0]))), up[1]
            elif int(chosen.max()) < up[0]:  # else some are missing
                up = len(chosen), up[1]
        return down, up

    def _checked_views(self, find_views: FindViews) -> dict[str, Rows | Columns]:
        """Check that every tensor is half of a pair that adds to a projection."""
        changed = _Changed(self._tensors)
        found = {
            name.removesuffix(".weight"): view
            for name, view in find_views(changed).items()
            if isinstance(view, Rows | Columns)
        }
        known = {view.tensor + half for view in found.values() for half in (_DOWN, _UP)}
        if unknown := sorted(set(self._tensors.names) - known):
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise AdapterError(
                f"{self._name} holds {unknown[0]}{more}, which is no half of a pair for a projection of this model: it "
                f"was made for another model, or changes more than projections. {_MERGE}",
                "files",
            )
        return found


def _floats(tensor: StoredTensor) -> Array:
    return tensor.floats().astype(FLOAT32, copy=False)


def _opened(path: Path) -> GgufTensors:
    try:
        return GgufTensors(LinkedFiles((path,)))
    except (ConfigError, OSError) as error:
        raise AdapterError(str(error), "files") from error


def _check_metadata(name: str, tensors: GgufTensors) -> None:
    if (kind := tensors.metadata.get("general.type", "model")) != "adapter":
        raise AdapterError(
            f"{name} is no adapter: it is a GGUF file of the type {shown(kind)}. Give a file that "
            "convert_lora_to_gguf.py wrote.",
            "files",
        )
    if not tensors.architecture:
        raise AdapterError(
            f"{name} doesn't name its architecture, which its rows' order depends on. Convert it again.",
            "files",
        )
    if (method := tensors.metadata.get("adapter.type", "")) != "lora":
        raise AdapterError(
            f"{name} is an adapter of the type {shown(method)}, and only LoRA adapters are loaded. {_MERGE}", "files"
        )
    alpha = tensors.metadata.get(_ALPHA, 0.0)
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise AdapterError(f"{name} has {_ALPHA}={shown(alpha)} where a number belongs. Convert it again.", "files")
    if "adapter.alora.invocation_tokens" in tensors.metadata:
        raise AdapterError(f"{name} begins to act at certain tokens (aLoRA), which is not supported. {_MERGE}", "files")
