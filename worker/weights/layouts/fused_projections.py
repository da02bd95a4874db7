"""Shows projections that share one tensor as the separate tensors that layers ask for.

  self_attn.qkv_proj  [queries | keys | values, in], mlp.gate_up_proj [gate | up, in]: as Phi-3 is stored
  attention.wqkv      [key heads × (their queries | key | value), in]: as InternLM2 is

A family's `StoredProjections` lists them. A weight's other tensors (biases, scales, zeros, packed words) are divided
along with it, in the dimension of the outputs. Slices are read lazily, as from any file.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy

from ....kernels.arrays import Array, DType
from ....protocol.errors import ConfigError
from ....records import dataclass
from ...description.config import ModelConfig
from ...description.parts.stored_names import StoredProjections
from ..piece import slices_of
from .layout import Sliceable
from .tensor_names import layer_names

# The dimension of a tensor that has a projection's outputs; tensors not listed belong to all of them.
_OUTPUTS = {
    **dict.fromkeys(("weight", "bias", "weight_packed", "weight_scale", "weight_scale_inv", "weight_zero_point"), 0),
    **dict.fromkeys(("qweight", "qzeros", "scales"), 1),
}
_SCALES = ("weight_scale", "weight_scale_inv")


@dataclass(frozen=True)
class _Share:
    """A share of a fused tensor's outputs: the units from first to last + 1 of `total` in each of so many groups."""

    first: int
    last: int
    total: int
    unit: int  # outputs
    num_groups: int = 1

    @property
    def num_units(self) -> int:
        return self.total * self.num_groups


class FusedProjections:
    """A layout with separate projections."""

    def __init__(self, stored: StoredProjections, config: ModelConfig) -> None:
        self._stored = stored
        self._config = config
        self._block = config.quantization.block[0] if config.quantization is not None else 0
        self._shown: dict[str, tuple[str, _Share]] = {}  # by the names of fused projections

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        return dict(self._named(stored))

    def view(self, name: str, stored: Array) -> Sliceable:
        if name not in self._shown:
            return stored
        fused, share = self._shown[name]
        tensor = name.rpartition(".")[2]
        dim, shape = _OUTPUTS.get(tensor), stored.shape
        if dim is None or len(shape) <= dim or shape[dim] == 1:  # shared by all outputs
            return stored
        size, outputs = shape[dim], share.unit * share.num_units
        rows = self._block or -(-outputs // size)  # rows that share a scale of blocked 8-bit floats
        is_in_blocks = tensor in _SCALES and size < outputs
        if size % share.num_units or (is_in_blocks and share.unit % rows):
            raise ConfigError(
                f"{fused} has {size} rows for the outputs of several projections, and one of them ends within such a "
                "row. Use a checkpoint with a scale for each output, or the model's original."
            )
        return FusedTensor(stored, share, dim)

    def _named(self, stored: Iterable[str]) -> Iterator[tuple[str, str]]:
        for name, own in layer_names(stored).items():
            module, _, tensor = name.rpartition(".")
            within, fused = _ending(module, self._stored.fused)
            if fused is None:
                within, renamed = _ending(module, self._stored.renamed)
                yield name if renamed is None else f"{within}{self._stored.renamed[renamed]}.{tensor}", own
                continue
            for part, share in zip(self._stored.fused[fused], self._shares(fused), strict=True):
                shown = f"{within}{part}.{tensor}"
                self._shown[shown] = own, share
                yield shown, own

    def _shares(self, fused: str) -> list[_Share]:
        config = self._config
        if len(self._stored.fused[fused]) == 2:
            return [_Share(0, 1, 2, config.intermediate_size), _Share(1, 2, 2, config.intermediate_size)]
        heads_of_all = config.heads[0]  # fused layers are all alike
        queries, keys, groups = config.num_heads, heads_of_all.num_kv_heads, 1
        if fused in self._stored.by_key_head:
            queries, keys, groups = queries // keys, 1, keys
        heads = math.gcd(queries, keys)  # per unit
        queries, keys = queries // heads, keys // heads
        borders = (0, queries, queries + keys, queries + 2 * keys)
        unit = heads * heads_of_all.head_dim
        return [_Share(first, last, borders[-1], unit, groups) for first, last in zip(borders, borders[1:])]


def _ending(module: str, names: Iterable[str]) -> tuple[str, str | None]:
    """Split a module's name into a prefix and one of `names` that it ends with."""
    for name in names:
        if module == name or module.endswith(f".{name}"):
            return module.removesuffix(name), name
    return module, None


@dataclass(frozen=True)
class FusedTensor:
    """One projection's share of a tensor in its file, to be sliced like a separate tensor."""

    stored: Array
    share: _Share
    dim: int  # the dimension of the outputs

    @property
    def dtype(self) -> DType:
        return self.stored.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        sizes = list(self.stored.shape)
        sizes[self.dim] = self._group_size * self.share.num_groups
        return tuple(sizes)

    def __getitem__(self, index: Any, /) -> Array:
        spans = slices_of(index, self.shape)
        pieces = []
        for span in self._stored_spans(spans[self.dim]) or [slice(0, 0)]:
            spans[self.dim] = span
            pieces.append(self.stored[tuple(spans)])
        return pieces[0] if len(pieces) == 1 else numpy.concatenate(pieces, self.dim)

    def _stored_spans(self, wanted: slice) -> list[slice]:
        """The stored ranges of these outputs, group by group."""
        found = []
        for group in range(self.share.num_groups):
            begin = group * self._group_size
            first, last = max(wanted.start, begin), min(wanted.stop, begin + self._group_size)
            before = self._unit * (group * self.share.total + self.share.first) - begin
            if first < last:
                found.append(slice(first + before, last + before))
        return found

    @property
    def _unit(self) -> int:
        return self.stored.shape[self.dim] // self.share.num_units

    @property
    def _group_size(self) -> int:
        return self._unit * (self.share.last - self.share.first)
