"""Experts of two kinds, each with a router of its own: some serve the tokens of text, the others those of media."""

from typing import Any

from ..description.parts.mixtures import ExpertsConfig
from ..weights.weights import Weights
from .experts import Experts, Router, expert_weights, fitting_experts

TEXT, MEDIA = 0, 1  # the kinds of tokens


class ExpertsByKind(Experts):
    """The shared MLP serves all tokens."""

    def __init__(self, weights: Weights, hidden_size: int, text: ExpertsConfig, media: ExpertsConfig) -> None:
        super().__init__(weights, hidden_size, text)
        self.media_router = Router(weights, hidden_size, media)
        inner = weights.at(media.names.experts)
        self.media_experts = fitting_experts(inner, expert_weights(inner, hidden_size, media), hidden_size)

    def of_kinds(self, x: Any, kinds: Any | None, adapted: Any | None) -> Any:
        """[T, hidden]; without kinds all tokens are of text."""
        if kinds is None:
            return self(x, adapted)
        total = self.ops.experts(x, self.router(x, kinds, TEXT), self.experts)  # [T, hidden], of this rank's share
        total = self.ops.add(total, self.ops.experts(x, self.media_router(x, kinds, MEDIA), self.media_experts))
        return self.with_shared(total, x, adapted)
