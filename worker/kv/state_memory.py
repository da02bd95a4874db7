"""The memory of a group of layers with states. Each state summarizes some tokens for all layers of the group.

The engine decides which state belongs to which tokens. States are float32 whatever a model's own format is, because
their errors would add up over all tokens.
"""

import math
from collections.abc import Callable
from typing import Any, Self

from ...kernels.arrays import FLOAT32, DType
from ...kernels.states import LayerStates
from ...records import dataclass
from ..description.parts.mixers import StateShape
from .kv_cache import Blocks


@dataclass
class StateMemory(Blocks):
    """States, used like blocks, in arrays or tensors; a part that the layers lack is empty."""

    convolved: Any  # float32 [layers, num_states, width - 1, channels]: a convolution's last inputs
    recurrent: Any  # float32 [layers, num_states, heads, key_dim, value_dim]

    @classmethod
    def allocate(
        cls, shape: StateShape, num_layers: int, num_states: int, zeros: Callable[[tuple[int, ...], DType], Any]
    ) -> Self:
        """`zeros` for `num_states` of this rank's shape."""

        def of(*size: int) -> Any:
            return zeros((num_layers, num_states, *size) if math.prod(size) else (num_layers, 0), FLOAT32)

        convolved = of(shape.conv_width - 1, shape.conv_channels)
        return cls(convolved, of(shape.num_heads, shape.key_dim, shape.value_dim))

    @property
    def parts(self) -> tuple[Any, ...]:
        return tuple(part for part in (self.convolved, self.recurrent) if part.shape[1])

    def of_layer(self, layer: int) -> LayerStates:
        return LayerStates(self.convolved[layer], self.recurrent[layer])
