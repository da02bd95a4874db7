"""The two ends of a model: the embedding of token ids and the head that gives logits, both split by vocabulary.

Knows nothing of what lies between them.
"""

from typing import Any

from torch import Tensor

from ..checkpoint import Weights
from .linear import Linear


class Embedding:
    """The table of this rank's share of the vocabulary; the ranks' sum is the whole."""

    def __init__(self, weights: Weights, vocab_size: int, hidden_size: int, is_tied: bool) -> None:
        placement = weights.placement
        self.ops = placement.ops
        self.first, last = placement.ranks.span(vocab_size)
        part = weights.matrix("weight", (vocab_size, hidden_size), (0, self.first, last))
        # A tied table is multiplied with, too; a table of its own keeps the model's number format.
        self.table = self.ops.table(part, placement.form if is_tied else placement.table_form)

    def __call__(self, token_ids: Any) -> Any:
        return self.ops.all_reduce(self.ops.embedding(token_ids, self.table, self.first))


class Head:
    """Logits of this rank's share of the vocabulary; `gathered` makes them whole, in float32, on every rank."""

    def __init__(self, weights: Weights, vocab_size: int, hidden_size: int, tied: Embedding | None) -> None:
        """With `tied` the head multiplies with the embedding's table."""
        placement = weights.placement
        self.ranks = placement.ranks
        self.vocab_size = vocab_size
        first, last = self.ranks.span(vocab_size)
        if tied:
            weight, biases = placement.ops.tied_weight(tied.table, placement.form), []
        else:
            part = weights.matrix("weight", (vocab_size, hidden_size), (0, first, last))
            weight = placement.ops.pack([part], placement.form)
            biases = [weights.vector("bias", (vocab_size,), (0, first, last))] if weights.has("bias") else []
        self.own = Linear(weight, biases, weights)

    def __call__(self, hidden: Any) -> Any:
        return self.own(hidden)

    def gathered(self, own: Tensor) -> Tensor:
        return self.ranks.all_gather(own.float(), self.vocab_size)
