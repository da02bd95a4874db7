"""The sizes of Gemma's per-layer embeddings, where each layer has its own token embedding.

One table holds the embeddings of all layers side by side. Reads no weights and imports no torch.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ....records import dataclass


@dataclass(frozen=True)
class TokenInputs:
    vocab_size: int
    width: int  # of one layer's embedding

    @property
    def scale(self) -> float:
        """The factor of the table's rows."""
        return math.sqrt(self.width)


def read_token_inputs(config: Mapping[str, Any], count: Callable[[str], int]) -> TokenInputs | None:
    """Read the sizes; None if the layers have no embeddings, which a width of 0 means."""
    given = config.get("vocab_size_per_layer_input")  # read in any case
    if config.get("hidden_size_per_layer_input") in (None, 0):
        return None
    width = count("hidden_size_per_layer_input")
    num_tokens = count("vocab_size")
    vocab_size = num_tokens if given is None else count("vocab_size_per_layer_input")
    if vocab_size < num_tokens:
        raise ValueError(f"vocab_size_per_layer_input gives layers embeddings of {vocab_size} of {num_tokens} tokens")
    return TokenInputs(vocab_size, width)
