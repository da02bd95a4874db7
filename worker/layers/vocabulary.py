"""The two ends of a model: the embedding of token ids and the head that gives logits, both split by vocabulary.

Knows nothing of what lies between them.
"""

from torch import Tensor

from ..checkpoint import Weights
from .linear import Linear


class Embedding:
    """The table of this rank's share of the vocabulary; the ranks' sum is the whole."""

    def __init__(self, weights: Weights, vocab_size: int, hidden_size: int) -> None:
        self.placement = weights.placement
        self.first, last = self.placement.ranks.span(vocab_size)
        self.table = weights.table("weight", (vocab_size, hidden_size), (0, self.first, last))

    def __call__(self, token_ids: Tensor) -> Tensor:
        found = self.placement.ops.embedding(token_ids, self.table, self.first).to(self.placement.activations)
        return self.placement.ranks.all_reduce(found)


class Head:
    """Logits in float32 over the whole vocabulary, on every rank."""

    def __init__(self, weights: Weights, vocab_size: int, hidden_size: int, tied: Embedding | None) -> None:
        """With `tied` the head multiplies with the embedding's table, in a packed copy of its own."""
        self.ranks = weights.placement.ranks
        self.vocab_size = vocab_size
        first, last = self.ranks.span(vocab_size)
        weight = tied.table if tied else weights.matrix("weight", (vocab_size, hidden_size), (0, first, last))
        bias = weights.vector("bias", (vocab_size,), (0, first, last)) if not tied and weights.has("bias") else None
        self.own = Linear(weight, bias, weights)

    def __call__(self, hidden: Tensor) -> Tensor:
        if not hidden.shape[0]:
            return hidden.new_empty((0, self.vocab_size)).float()
        return self.ranks.all_gather(self.own(hidden).float(), self.vocab_size)
