"""The memory of a group of layers with states. Each state summarizes some tokens for all layers of the group.

The engine decides which state belongs to which tokens. States are float32 whatever a model's own format is, because
their errors would add up over all tokens.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ...kernels.states import LayerStates
from ..description.parts.mixers import StateShape
from .kv_cache import Blocks, zeros


@dataclass
class StateMemory(Blocks):
    """States, used like blocks; a part that the layers lack is empty."""

    convolved: Tensor  # float32 [layers, num_states, width - 1, channels]: a convolution's last inputs
    recurrent: Tensor  # float32 [layers, num_states, heads, key_dim, value_dim]

    @classmethod
    def allocate(cls, shape: StateShape, num_layers: int, num_states: int, device: torch.device | str) -> Self:
        """Zeros for `num_states` of this rank's shape."""

        def of(*size: int) -> Tensor:
            if not math.prod(size):
                return torch.empty(num_layers, 0, device=device)
            return zeros((num_layers, num_states, *size), torch.float32, device)

        convolved = of(shape.conv_width - 1, shape.conv_channels)
        return cls(convolved, of(shape.num_heads, shape.key_dim, shape.value_dim))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in (self.convolved, self.recurrent) if tensor.numel())

    def of_layer(self, layer: int) -> LayerStates:
        return LayerStates(self.convolved[layer], self.recurrent[layer])
