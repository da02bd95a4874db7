"""The two ends of a model: the embedding of token ids and the head that gives logits, both split by vocabulary."""

from typing import Any

from ..weights.checkpoint import Weights
from ..weights.piece import Piece
from .linear import Linear


class Embedding:
    """The table of this rank's share of the vocabulary; the ranks' sum is the whole."""

    def __init__(self, weights: Weights, vocab_size: int, hidden_size: int, is_tied: bool) -> None:
        placement = weights.placement
        self.ops = placement.ops
        self.first, last = placement.ranks.span(vocab_size)
        piece = Piece("weight", (vocab_size, hidden_size), (0, self.first, last))
        # [vocabulary / ranks, hidden]. A tied table is multiplied with, too; one of its own keeps the model's numbers.
        self.table = weights.table(piece, placement.head_form if is_tied else placement.table_form)

    def __call__(self, token_ids: Any) -> Any:
        rows = self.ops.embedding(token_ids, self.table, self.first)  # [T, hidden], zeros for other ranks' tokens
        return self.ops.all_reduce(rows)  # [T, hidden]


class Head:
    """Logits over the whole vocabulary, from every rank's share of it."""

    def __init__(self, weights: Weights, vocab_size: int, hidden_size: int, tied: Embedding | None) -> None:
        """With `tied` the head multiplies with the embedding's table."""
        placement = weights.placement
        self.vocab_size = vocab_size
        first, last = placement.ranks.span(vocab_size)
        if tied:
            weight, biases = placement.ops.tied_weight(tied.table, placement.head_form), []
        else:
            piece = Piece("weight", (vocab_size, hidden_size), (0, first, last))
            weight = weights.packed([piece], placement.head_form)
            biases = [weights.vector("bias", (vocab_size,), (0, first, last))] if weights.has("bias") else []
        self.own = Linear(weight, biases, weights)

    def __call__(self, hidden: Any) -> Any:
        share = self.own(hidden)  # [S, vocabulary / ranks]
        return self.own.ops.all_gather(share, self.vocab_size)  # [S, vocabulary]
