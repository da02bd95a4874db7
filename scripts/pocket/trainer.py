"""The training itself: steps, schedule, checkpoints, progress.

The rate rises, stays, and falls to nothing over the larger part of the run, in which most is learnt. A checkpoint holds
all that a later start needs to go on as if nothing had happened.
"""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from .batches import TOKENS_PER_STEP, Batch, single_batch, training_batch
from .experts import unevenness
from .kinds import Mixture, held_out
from .model import Decoder
from .optimizer import optimizers
from .precision import computing

MATRIX_RATE, OTHER_RATE = 0.02, 0.003
WARM_UP_STEPS = 100
FALL = 0.6  # of all steps
REPORT_EVERY, SAVE_EVERY, MEASURE_EVERY = 20, 20, 500
HELD_OUT_PER_KIND = 24


@dataclass
class Training:
    model: Decoder
    tokenizer: Tokenizer
    seed: int
    steps: int
    device: str
    mixture: Mixture = field(default_factory=Mixture)
    tokens: int | None = None  # of a step; TOKENS_PER_STEP if not given
    rate: float = 1.0  # of the highest rates, for what is trained already
    done: int = 0

    def __post_init__(self) -> None:
        self.model.to(self.device)
        self.optimizers = optimizers(self.model, self.rate * MATRIX_RATE, self.rate * OTHER_RATE)

    def run(self, checkpoint: Path) -> None:
        """All steps that are left."""
        started, first, losses = time.monotonic(), self.done, []
        while self.done < self.steps:
            losses.append(self._step())
            self.done += 1
            if self.done % REPORT_EVERY == 0:
                pace = (self.done - first) * (self.tokens or TOKENS_PER_STEP) / (time.monotonic() - started)
                mean = sum(losses) / len(losses)
                print(f"step {self.done:,}/{self.steps:,}  loss {mean:.4f}  {pace:,.0f} tokens/s", flush=True)
                losses.clear()
            is_measured = self.done % MEASURE_EVERY == 0 or self.done == self.steps
            if is_measured or self.done % SAVE_EVERY == 0:
                self._save(checkpoint)
            if is_measured:
                print(self._measured(), flush=True)

    def _step(self) -> float:
        batch = training_batch(self.tokenizer, self.seed, self.done, self.mixture, self.tokens)
        share = rate_share(self.done, self.steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * share
        logits = self._logits(batch)
        loss = functional.cross_entropy(logits, batch.targets.to(self.device))
        (loss + unevenness(self.model)).backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        for example, right in zip(batch.examples, wholly_right(logits, batch), strict=True):
            if not example.silent:
                self.mixture.note(example.kind, right)
        return loss.item()

    def _logits(self, batch: Batch) -> Tensor:
        """For the tokens of the answers alone: most of the text is questions."""
        tokens = batch.tokens.to(self.device)
        with computing(self.device):
            hidden = self.model(tokens, batch.shapes)[batch.places.to(self.device)]
            return functional.linear(hidden, self.model.embed_tokens.weight).float()

    def _measured(self) -> str:
        accuracy = self.held_out_accuracy()
        mean = sum(accuracy.values()) / len(accuracy)
        return f"held-out {mean:.1%}: " + ", ".join(f"{kind} {share:.0%}" for kind, share in accuracy.items())

    @torch.no_grad()
    def held_out_accuracy(self) -> dict[str, float]:
        """The share of held-out answers whose every token is the likeliest one: what greedy decoding would give."""
        right: dict[str, list[float]] = defaultdict(list)
        for kind in self.mixture.kinds:
            examples = held_out(kind, HELD_OUT_PER_KIND, "while training", self.mixture.kinds)
            batch = single_batch(self.tokenizer, examples)
            right[kind] = wholly_right(self._logits(batch), batch)
        return {kind: sum(rights) / len(rights) for kind, rights in right.items()}

    def _save(self, path: Path) -> None:
        state = {
            "done": self.done,
            "tokenizer": self.tokenizer.to_str(),
            "wrong": self.mixture.wrong,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        half = path.with_suffix(".half")
        torch.save(state, half)
        half.replace(path)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        self.done, self.mixture.wrong = state["done"], state["wrong"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def rate_share(step: int, steps: int) -> float:
    """Which share of the highest rate this step learns at."""
    return min((step + 1) / min(WARM_UP_STEPS, 0.05 * steps), (steps - step) / (steps * FALL), 1.0)


@torch.no_grad()
def wholly_right(logits: Tensor, batch: Batch) -> list[float]:
    """1.0 for every example whose answer's tokens are all the likeliest ones."""
    wrong = logits.argmax(-1).cpu() != batch.targets
    missed = torch.zeros(len(batch.examples)).index_add_(0, batch.owners, wrong.float())
    return (missed == 0).float().tolist()
