"""The least work that a model's steps need: bytes of weights, keys and values read, and operations of products and
attention, by the shapes of `bench/models.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_BYTES = 2  # of a number: all is in bfloat16


@dataclass(frozen=True)
class Work:
    hidden: int
    inner: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int

    @classmethod
    def of(cls, shape: dict[str, Any]) -> "Work":
        names = (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "head_dim", "vocab_size",
        )  # fmt: skip
        return cls(*(shape[name] for name in names))

    @property
    def layer_weights(self) -> int:
        """Of attention's four products and the three of gate, up and down."""
        heads = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        return self.num_layers * self.hidden * (heads + 3 * self.inner)

    @property
    def head_weights(self) -> int:
        return self.vocabulary * self.hidden

    def weight_bytes(self) -> int:
        """That a step reads: of an embedding's table it reads a few rows, which are left out."""
        return (self.layer_weights + self.head_weights) * _BYTES

    def kv_bytes(self) -> int:
        """Of one token, all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * _BYTES

    def prompt_operations(self, lengths: Iterable[int]) -> float:
        """Products of all tokens, causal attention, and the head of each last token."""
        asked = list(lengths)
        attention = sum(attention_operations(self.num_heads, self.head_dim, length) for length in asked)
        products = 2 * self.layer_weights * sum(asked) + 2 * self.head_weights * len(asked)
        return products + self.num_layers * attention


def attention_operations(num_heads: int, head_dim: int, length: int) -> float:
    """Of one layer, causal: scores and weighted values."""
    return 4 * num_heads * head_dim * length * (length + 1) / 2
