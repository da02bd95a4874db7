"""The number format of each layer's matrix."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...kernels import WeightFormat


@dataclass(frozen=True)
class LayerFormats:
    own: WeightFormat  # the model's: of tables that are only read, and of layers that are not named here
    named: Mapping[str, WeightFormat] = field(default_factory=dict)  # by the names of layers

    @property
    def kinds(self) -> str:
        """The kinds of numbers that there are, for people to read."""
        return " and ".join(sorted({format.kind for format in self.named.values()}))

    def of(self, layer: str) -> WeightFormat:
        return self.named.get(layer, self.own)
