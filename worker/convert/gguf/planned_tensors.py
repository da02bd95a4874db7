"""Plans the tensors of a GGUF file: the model's tensors in each, in order, and how they are changed.

    experts       [experts, outputs, inputs], the matrices of all of a layer's experts
    fused         the rows of several projections, as in Phi-3
    pairs         rows of queries and keys, reordered to rotate neighbouring elements instead of halves
    norms         plus the 1 that Gemma's checkpoints leave out

This is the reverse of reading such files (`../../weights/gguf/`). It works on names and shapes and reads no weights.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy

from ....kernels.arrays import FLOAT32, Array
from ....protocol.errors import ConfigError
from ....protocol.files.gguf.architectures.architecture import Architecture
from ....records import dataclass
from ...description.config import ModelConfig
from ...description.text_config import PICTURE_TENSORS
from ...layers.rope import inverse_frequencies
from ...weights.gguf.checkpoint import views_of
from ...weights.gguf.views import Made, Rows, View, less_one
from ..conversion_plan import StoredTensor
from .check_expressible import inexpressible

_TOP = ("token_embd", "output_norm", "output")
_PART = re.compile(r"blk\.\d+\.(.+)")
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_NOT_READ = ("rotary_emb.inv_freq",)


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor of the file."""

    shape: tuple[int, ...]
    sources: tuple[StoredTensor, ...] = ()  # their rows are concatenated
    head_dim: int = 0  # rows are paired within heads of this size; 0: they stay in order
    added: float = 0.0  # to all numbers
    values: Array | None = None  # float32 values to write, instead of sources


class _Part(NamedTuple):
    """A tensor of the model, and its view in the file."""

    view: View
    source: StoredTensor

    @property
    def first_row(self) -> int:
        """The first row in a tensor of the file that is shared with others."""
        chosen = self.view.chosen if isinstance(self.view, Rows) else None
        return (chosen.start or 0) if isinstance(chosen, slice) else 0


class _ArchitectureTensors:
    """The tensors of llama.cpp's architecture by name, as if a file already had them."""

    def __init__(self, architecture: Architecture, config: ModelConfig) -> None:
        self._written = architecture
        self._mlp_width = config.intermediate_size

    @property
    def architecture(self) -> str:
        return self._written.name

    def has(self, name: str) -> bool:
        module, _, kind = name.rpartition(".")
        if module in _TOP:
            return kind == "weight"
        parts = {"weight": self._written.parts, "bias": self._written.biased}.get(kind, frozenset())
        return (match := _PART.fullmatch(module)) is not None and match[1] in parts

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of `ffn_up`, which tells whether it contains the gate."""
        is_fused = name.endswith(".ffn_up.weight") and "ffn_gate" not in self._written.parts
        return (2 * self._mlp_width,) if is_fused else ()


def planned_tensors(
    config: ModelConfig, architecture: Architecture, stored: Iterable[StoredTensor]
) -> dict[str, PlannedTensor]:
    """Plan the tensors by their names in the file, in its order. Raise if llama.cpp has no such tensor."""
    views = views_of(_ArchitectureTensors(architecture, config), config)
    found: dict[str, list[_Part]] = {}
    for source in stored:
        if not _is_written(source.name, config):
            continue
        if (view := views.get(source.name)) is None:
            raise inexpressible(f"llama.cpp's architecture {architecture.name} has no tensor for its {source.name}")
        [name] = view.tensors
        found.setdefault(name, []).append(_Part(view, source))
    sizes = _sizes(views.values())
    planned = {name: _planned(name, parts, sizes.get(name), config) for name, parts in found.items()}
    return dict(sorted((planned | _of_positions(config)).items(), key=_order))


def _sizes(views: Iterable[View]) -> dict[str, int]:
    """The numbers of rows of shared tensors."""
    sizes: dict[str, int] = {}
    for view in views:
        if isinstance(view, Rows) and isinstance(view.chosen, slice) and view.chosen.stop is not None:
            sizes[view.tensor] = max(sizes.get(view.tensor, 0), view.chosen.stop)
    return sizes


def _is_written(name: str, config: ModelConfig) -> bool:
    """Whether a tensor is written: no encoders, tied heads, or layers for speculative decoding."""
    if PICTURE_TENSORS.match(name) or name.endswith(_NOT_READ):
        return False
    if name.startswith("lm_head.") and config.tie_word_embeddings:
        return False
    layer = _LAYER.match(name)
    return layer is None or int(layer[1]) < config.num_layers


def _order(item: tuple[str, PlannedTensor]) -> tuple[int, str]:
    """Tensors outside layers first, then layer by layer, in the order of reading."""
    match = re.match(r"blk\.(\d+)\.", item[0])
    return (int(match[1]) if match else -1, item[0])


def _planned(name: str, parts: list[_Part], num_rows: int | None, config: ModelConfig) -> PlannedTensor:
    parts = sorted(parts, key=lambda part: part.first_row)
    if num_rows is not None:
        _require_rows(name, parts, num_rows)
    view = parts[0].view
    planned = PlannedTensor(_shape(name, parts), tuple(part.source for part in parts))
    if isinstance(view, Made) and view.make is less_one:
        return replace(planned, added=1.0)
    if isinstance(view, Rows) and isinstance(view.chosen, numpy.ndarray):  # halves of pairs
        return replace(planned, head_dim=config.heads[0].head_dim)
    return planned


def _require_rows(name: str, parts: list[_Part], num_rows: int) -> None:
    """Check that the parts fill the tensor without gaps."""
    counts = [part.source.shape[0] for part in parts]
    is_whole = [part.first_row for part in parts] == [sum(counts[:number]) for number in range(len(parts))]
    if not is_whole or sum(counts) != num_rows or len({part.source.shape[1:] for part in parts}) > 1:
        raise ConfigError(
            f"{name} is made of {num_rows:,} rows, and {parts[0].source.name} and so on have others. Download the "
            "model again as a whole."
        )


def _shape(name: str, parts: list[_Part]) -> tuple[int, ...]:
    *rows, inputs = shape = parts[0].source.shape
    if name.endswith("_exps.weight"):
        return (len(parts), *shape)
    if name.endswith(("_shexp.weight", "exp_probs_b.bias")) and rows == [1]:
        return (inputs,)
    return shape if len(parts) == 1 else (sum(part.source.shape[0] for part in parts), *shape[1:])


def _of_positions(config: ModelConfig) -> dict[str, PlannedTensor]:
    """The divisors of rotary angles, which llama.cpp reads as a tensor."""
    rope = config.ropes.ropes[0]
    if rope.kind == "llama3":
        plain = inverse_frequencies(replace(rope, kind="default"), rope.max_position)
        return {"rope_freqs.weight": _values(plain / inverse_frequencies(rope, rope.max_position))}
    if rope.kind == "longrope":
        return {
            f"rope_factors_{length}.weight": _values(numpy.array(rope.figures[f"{length}_factor"]))
            for length in ("long", "short")
        }
    return {}


def _values(numbers: Array) -> PlannedTensor:
    return PlannedTensor(numbers.shape, values=numbers.astype(FLOAT32))
