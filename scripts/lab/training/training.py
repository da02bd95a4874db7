"""The training loop that all bundled models share: steps, schedule, checkpoints, progress.

The rate rises, stays, and falls to nothing over the last part of the run, in which most is learnt. A checkpoint holds
all that a later start needs to go on as if nothing had happened. A model's own file says what a batch and a loss are.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .optimizer import optimizers

MATRIX_RATE, OTHER_RATE = 0.02, 0.003
WARM_UP_STEPS = 100
REPORT_EVERY, MEASURE_EVERY = 20, 500

Rights = dict[str, list[float]]  # by kind, for each example 1.0 if all of its answer's tokens are the likeliest ones


class Training(ABC):
    fall = 0.6  # share of all steps in which the rate falls
    save_every = MEASURE_EVERY

    def __init__(self, modules: Mapping[str, nn.Module], steps: int, rate: float = 1.0) -> None:
        """`rate` is a share of the highest rates, for what is trained already."""
        self.modules = modules
        self.steps = steps
        self.done = 0
        self.optimizers = optimizers(nn.ModuleDict(modules), rate * MATRIX_RATE, rate * OTHER_RATE)

    @abstractmethod
    def batches(self) -> Generator[Any, None, None]:
        """The batches of all steps from `done` on, made one by one."""

    @abstractmethod
    def losses(self, batch: Any) -> tuple[Tensor, ...]:
        """Parts of the loss; progress shows the first."""

    @abstractmethod
    def measured(self) -> str:
        """Accuracy on held-out questions, in a line or two."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write the model as a published checkpoint."""

    def run(self, checkpoint: Path) -> None:
        """Do all steps that are left."""
        started, first, losses = time.monotonic(), self.done, []
        with closing(self.batches()) as batches:
            while self.done < self.steps:
                losses.append(self._step(next(batches)))
                self.done += 1
                if self.done % REPORT_EVERY == 0:
                    pace = (time.monotonic() - started) / (self.done - first)
                    mean = sum(losses) / len(losses)
                    print(f"step {self.done:,}/{self.steps:,}  loss {mean:.4f}  {pace:.2f} s a step", flush=True)
                    losses.clear()
                is_measured = self.done % MEASURE_EVERY == 0 or self.done == self.steps
                if is_measured or self.done % self.save_every == 0:
                    self._save(checkpoint)
                if is_measured:
                    print(self.measured(), flush=True)

    def _step(self, batch: Any) -> float:
        share = rate_share(self.done, self.steps, self.fall)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * share
        losses = self.losses(batch)
        sum(losses[1:], losses[0]).backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return losses[0].item()

    def state(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            **{name: module.state_dict() for name, module in self.modules.items()},
        }

    def _save(self, path: Path) -> None:
        half = path.with_suffix(".half")
        torch.save(self.state(), half)
        half.replace(path)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        self.done = state["done"]
        for name, module in self.modules.items():
            module.load_state_dict(state[name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def rate_share(step: int, steps: int, fall: float) -> float:
    """Share of the highest rate that this step learns at."""
    return min((step + 1) / min(WARM_UP_STEPS, 0.05 * steps), (steps - step) / (steps * fall), 1.0)


@torch.no_grad()
def rights_of(logits: Tensor, targets: Tensor, owners: Tensor, count: int) -> list[float]:
    """1.0 for each of `count` examples if all tokens that it owns are the likeliest ones."""
    wrong = logits.argmax(-1).cpu() != targets
    missed = torch.zeros(count).index_add_(0, owners, wrong.float())
    return (missed == 0).float().tolist()


def shares(rights: Rights) -> str:
    every = [right for each in rights.values() for right in each] or [0.0]
    kinds = ", ".join(f"{kind} {sum(each) / len(each):.0%}" for kind, each in rights.items())
    return f"{sum(every) / len(every):.1%}: {kinds}"
