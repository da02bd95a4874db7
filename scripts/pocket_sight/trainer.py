"""The training itself: steps, schedule, checkpoints, progress.

Batches are made in a process of their own. A checkpoint holds all that a later start needs to go on as if nothing had
happened.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch
from pocket.optimizer import optimizers
from pocket.precision import COMPUTED, computing
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3VLForConditionalGeneration

from .batches import Batch, Shown, held_out_batch, seeing_batch, training_batch
from .kinds import KINDS, held_out
from .model import compile_small_operations
from .seeing import Seeing
from .sizes import FRAMES, PATCH

MATRIX_RATE, OTHER_RATE = 0.02, 0.003
WARM_UP_STEPS = 100
SEEING_SHARE = 0.3  # of their loss, afterwards
FALL = 0.5  # of all steps
REPORT_EVERY, MEASURE_EVERY = 50, 500
HELD_OUT_PER_KIND = 40
_AHEAD = 4  # batches that wait


@dataclass
class Training:
    model: Qwen3VLForConditionalGeneration
    tokenizer: Tokenizer
    seed: int
    steps: int
    seeing_steps: int  # the first of all, in which only the eyes are taught
    export: Callable[[], None]  # after every checkpoint
    done: int = 0
    held_out: dict[str, Batch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seeing = Seeing(self.model.config.text_config.hidden_size)
        learnt = nn.ModuleDict({"model": self.model, "seeing": self.seeing})
        self.optimizers = optimizers(learnt, MATRIX_RATE, OTHER_RATE)

    def run(self, checkpoint: Path) -> None:
        """All steps that are left."""
        context = get_context("spawn")
        waiting: Queue = context.Queue(_AHEAD)
        state = self.tokenizer.to_str()
        made = (waiting, state, self.seed, self.done, self.seeing_steps)
        painter = context.Process(target=paint, args=made, daemon=True)
        painter.start()
        compile_small_operations(self.model)
        print(f"processes {os.getpid()} {painter.pid}", flush=True)
        started, first, losses = time.monotonic(), self.done, []
        rights: dict[str, list[float]] = defaultdict(list)
        while self.done < self.steps:
            loss, right = self._step(waiting.get())
            losses.append(loss)
            for kind, share in right:
                rights[kind].append(share)
            self.done += 1
            if self.done % REPORT_EVERY == 0:
                pace = (time.monotonic() - started) / (self.done - first)
                mean = sum(losses) / len(losses)
                print(f"step {self.done:,}/{self.steps:,}  loss {mean:.4f}  {pace:.2f} s a step", flush=True)
                losses.clear()
            if self.done % MEASURE_EVERY == 0 or self.done == self.steps:
                self._save(checkpoint)
                print("training " + _shares(rights), flush=True)
                print("held-out " + _shares(self.held_out_rights()), flush=True)
                rights.clear()
        painter.terminate()

    def _step(self, batch: Batch | Shown) -> tuple[float, list[tuple[str, float]]]:
        share = rate_share(self.done, self.steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * share
        if isinstance(batch, Shown):
            loss, right = self._seen(batch)
        else:
            loss, right = self._answered(batch)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.item(), right

    def _seen(self, shown: Shown) -> tuple[Tensor, list[tuple[str, float]]]:
        with computing():
            rows = self.model.model.visual(pixel_values(shown.pixels), grid_thw=shown.grids).pooler_output
        return self.seeing.loss(rows, shown.targets), [("seeing", self.seeing.rights(rows, shown.targets))]

    def _answered(self, batch: Batch) -> tuple[Tensor, list[tuple[str, float]]]:
        logits, rows = self._logits(batch)
        loss = functional.cross_entropy(logits, batch.targets)
        loss = loss + SEEING_SHARE * self.seeing.loss(rows, batch.shown.targets)
        rights = list(zip(batch.kinds, rights_of(logits, batch)))
        return loss, [*rights, ("seeing", self.seeing.rights(rows, batch.shown.targets))]

    def _logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """For the tokens of the answers alone, and the pictures' rows."""
        shown = batch.shown
        pictures = {"pixel_values": pixel_values(shown.pixels), "image_grid_thw": shown.grids}
        with computing():
            output = self.model.model(
                input_ids=batch.tokens,
                position_ids=batch.positions,
                attention_mask=visible(batch.branches),
                use_cache=False,
                **(pictures if len(shown.grids) else {}),
            )
            hidden = output.last_hidden_state[batch.places]
            logits = functional.linear(hidden, self.model.lm_head.weight).float()
        rows = torch.cat(tuple(output.image_outputs.pooler_output)) if len(shown.grids) else torch.zeros(0)
        return logits, rows

    @torch.no_grad()
    def held_out_rights(self) -> dict[str, list[float]]:
        """Of each kind, for each question whether every token of its answer is the likeliest one."""
        if not self.held_out:  # drawn once: most drawings have nothing to ask that is held out
            for kind in KINDS:
                asked = held_out(kind, HELD_OUT_PER_KIND, "while training")
                self.held_out[kind] = held_out_batch(self.tokenizer, asked)
        return {kind: rights_of(self._logits(batch)[0], batch) for kind, batch in self.held_out.items()}

    def _save(self, path: Path) -> None:
        state = {
            "done": self.done,
            "model": self.model.state_dict(),
            "seeing": self.seeing.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        half = path.with_suffix(".half")
        torch.save(state, half)
        half.replace(path)
        self.export()

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        self.done = state["done"]
        self.model.load_state_dict(state["model"])
        self.seeing.load_state_dict(state["seeing"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def paint(waiting: Queue, tokenizer: str, seed: int, first: int, seeing_steps: int) -> None:
    """Makes the batches from this step on, in a process of its own; its memory is theirs, so it stays to the end."""
    torch.set_num_threads(1)
    made = Tokenizer.from_str(tokenizer)
    for step in count(first):
        waiting.put(seeing_batch(seed, step) if step < seeing_steps else training_batch(made, seed, step))


def visible(branches: Tensor) -> Tensor:
    """Added to scores, [rows, 1, length, length]: each token sees what is before it and in its branch or in none."""
    sees, seen = branches[:, :, None], branches[:, None, :]
    length = branches.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool).tril()
    hidden = ~(((seen == 0) | (seen == sees)) & earlier)
    return torch.zeros(hidden.shape, dtype=COMPUTED).masked_fill(hidden, float("-inf"))[:, None]


def pixel_values(frame: Tensor) -> Tensor:
    """As the processor gives them: from -1 to 1, the one frame twice."""
    values = (frame.float() / 127.5 - 1).view(-1, 3, 1, PATCH * PATCH)
    return values.expand(-1, -1, FRAMES, -1).flatten(1)


@torch.no_grad()
def rights_of(logits: Tensor, batch: Batch) -> list[float]:
    wrong = logits.argmax(-1) != batch.targets
    missed = torch.zeros(len(batch.kinds)).index_add_(0, batch.owners, wrong.float())
    return (missed == 0).float().tolist()


def rate_share(step: int, steps: int) -> float:
    """Which share of the highest rate this step learns at."""
    return min((step + 1) / WARM_UP_STEPS, (steps - step) / (steps * FALL), 1.0)


def _shares(rights: Mapping[str, list[float]]) -> str:
    every = [right for kind, each in rights.items() if kind in KINDS for right in each] or [0.0]
    kinds = ", ".join(f"{kind} {sum(each) / len(each):.0%}" for kind, each in sorted(rights.items()))
    return f"{sum(every) / len(every):.1%}: {kinds}"
