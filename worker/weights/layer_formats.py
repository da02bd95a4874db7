"""The number format of each layer's matrix."""

from collections.abc import Mapping
from dataclasses import field

from ...kernels import WeightFormat
from ...records import dataclass


@dataclass(frozen=True)
class LayerFormats:
    own: WeightFormat  # the model's own, for tables that are only read and for layers not in `named`
    named: Mapping[str, WeightFormat] = field(default_factory=dict)  # by layer name

    @property
    def kinds(self) -> str:
        """All number formats, for people to read."""
        return " and ".join(sorted({format.kind for format in self.named.values()}))

    def of(self, layer: str) -> WeightFormat:
        return self.named.get(layer, self.own)
