"""What a layer with a state keeps of all tokens before, in numbers of fixed size. Imports no torch."""

from dataclasses import dataclass

_FLOAT = 4


@dataclass(frozen=True)
class StateShape:
    """Of all ranks together; float32. Layers of one shape are a group of the memory."""

    conv_width: int  # inputs that a convolution reads, the newest included; the others are kept
    conv_channels: int
    num_heads: int = 0  # of matrices; 0: there are none
    key_dim: int = 0
    value_dim: int = 0

    @property
    def nbytes(self) -> int:
        numbers = (self.conv_width - 1) * self.conv_channels + self.num_heads * self.key_dim * self.value_dim
        return _FLOAT * numbers
