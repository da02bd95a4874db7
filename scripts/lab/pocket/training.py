"""Trains pocket, or the tests' mixture of experts, on generated text."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from ..text.mixture import Mixture, held_out
from ..training.precision import computing
from ..training.published import end_tokens, write_published
from ..training.training import Rights, rights_of, shares
from ..training.training import Training as SharedTraining
from .batches import Batch, single_batch, training_batch
from .experts import unevenness
from .model import Decoder

HELD_OUT_PER_KIND = 24
TEMPLATE = Path(__file__).with_name("chat_template.jinja")


class Training(SharedTraining):
    save_every = 20

    def __init__(
        self, model: Decoder, tokenizer: Tokenizer, steps: int, *, seed: int = 0, device: str = "cpu",
        mixture: Mixture | None = None, tokens: int | None = None, rate: float = 1.0,
    ) -> None:  # fmt: skip
        """`tokens` of a step, and `rate` as a share of the usual."""
        self.model, self.tokenizer, self.seed, self.device = model.to(device), tokenizer, seed, device
        self.mixture, self.tokens = mixture or Mixture(), tokens
        super().__init__({"model": model}, steps, rate)

    def batches(self) -> Generator[Batch, None, None]:
        while True:  # the mixture has changed by the next one
            yield training_batch(self.tokenizer, self.seed, self.done, self.mixture, self.tokens)

    def losses(self, batch: Batch) -> tuple[Tensor, ...]:
        logits = self._logits(batch)
        for example, right in zip(batch.examples, self._rights(logits, batch), strict=True):
            if not example.silent:
                self.mixture.note(example.kind, right)
        return functional.cross_entropy(logits, batch.targets.to(self.device)), unevenness(self.model)

    def _logits(self, batch: Batch) -> Tensor:
        """For the tokens of the answers alone: most of the text is questions."""
        tokens = batch.tokens.to(self.device)
        with computing(self.device):
            hidden = self.model(tokens, batch.shapes)[batch.places.to(self.device)]
            return functional.linear(hidden, self.model.embed_tokens.weight).float()

    def _rights(self, logits: Tensor, batch: Batch) -> list[float]:
        return rights_of(logits, batch.targets, batch.owners, len(batch.examples))

    def measured(self) -> str:
        return f"held-out {shares(self.held_out_rights())}"

    @torch.no_grad()
    def held_out_rights(self) -> Rights:
        """The accuracy of greedy decoding."""
        rights: Rights = {}
        for kind in self.mixture.kinds:
            examples = held_out(kind, HELD_OUT_PER_KIND, "while training", self.mixture.kinds)
            batch = single_batch(self.tokenizer, examples)
            rights[kind] = self._rights(self._logits(batch), batch)
        return rights

    def state(self) -> dict[str, Any]:
        return super().state() | {"tokenizer": self.tokenizer.to_str(), "wrong": self.mixture.wrong}

    def resume(self, state: Mapping[str, Any]) -> None:
        super().resume(state)
        self.mixture.wrong = state["wrong"]

    def export(self, folder: Path) -> None:
        end_of_text, end_of_turn = end_tokens(self.tokenizer)
        ids = {"bos_token_id": None, "eos_token_id": end_of_turn, "pad_token_id": end_of_text}
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        write_published(folder, self.model.shape.config() | ids, tensors, self.tokenizer, TEMPLATE)
