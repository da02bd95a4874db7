"""Prompts that end in numbers: what a model makes of its hidden states, and what a request wants of it.

The front end reads a model's form from its files and tells the worker at the start; a request of such a model samples
no token, and ends with vectors once its prompt is computed.
"""

import msgspec

from ..wire import Part

# How the rows of a prompt become one, as sentence-transformers calls it, and in its order.
MODES = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")

# Patterns of the files within a model's folder that its modules, such as 1_Pooling and 2_Dense, are read from.
MODULE_FILES = ("[0-9]*_*/config.json", "[0-9]*_*/*.safetensors")


class HeadLayer(msgspec.Struct, frozen=True, array_like=True):
    """A layer behind a pooled row: a product or a norm if it has a weight, then an activation."""

    weight: str = ""  # the tensor's name
    size: int = 0  # numbers that a product gives
    bias: str = ""  # the tensor's name; one that isn't there adds nothing
    activation: str = ""
    folder: str = ""  # with its tensors, within the model's; empty: they are in the model's own
    epsilon: float | None = None  # of a norm that subtracts the mean; None: a product
    difference: list[int] = []  # only these rows of the product: the first minus the second, if there is one
    is_unit_length: bool = False  # no weight: the row is brought to length 1

    def width_after(self, width: int) -> int:
        """How many numbers it makes of a row of this width."""
        return 1 if self.difference else self.size or width


class PoolingForm(msgspec.Struct, frozen=True, array_like=True):
    """How a model's rows become what a request gets."""

    modes: list[str]  # of `MODES`; what they give stands side by side
    head: list[HeadLayer] = []
    by_token: bool = False  # every token's row goes through the head by itself, whatever the request says

    @property
    def reads_all(self) -> bool:
        """Return whether every row of a prompt counts, so that none may come from a cache."""
        return self.by_token or self.modes != ["lasttoken"]

    def width(self, hidden_size: int) -> int:
        """Return how many numbers a vector has."""
        width = hidden_size * len(self.modes)
        for layer in self.head:
            width = layer.width_after(width)
        return width


class WantedVectors(Part):
    """What a request wants instead of tokens."""

    by_token: bool = False  # a vector for each token; otherwise one for all
    reads_all: bool = False
    second_text: int = 0  # of a pair of texts, where the second one begins; 0: there is none
    labels: bytes = b""  # int32 ids, whose log-probabilities behind the prompt are wanted of a model that writes text


class Vectors(Part):
    """What a prompt has ended with: one row of numbers, or one for each token."""

    owner: int  # row in a StepResult, sequence id everywhere else
    width: int
    values: bytes  # float32, rows x width
