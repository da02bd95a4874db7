"""Trains pocket-sight: first the eyes alone, then questions about pictures.

Batches are made in a process of their own.
"""

from collections import defaultdict
from collections.abc import Generator
from itertools import count
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3VLForConditionalGeneration

from ..training.precision import COMPUTED, computing
from ..training.published import write_json, write_published
from ..training.training import Rights, rights_of, shares
from ..training.training import Training as SharedTraining
from .batches import Batch, Shown, held_out_batch, seeing_batch, training_batch
from .kinds import KINDS, held_out
from .model import compile_small_operations, preprocessor_config, published_config
from .seeing import Seeing
from .sizes import FRAMES, PATCH

SEEING_SHARE = 0.3  # of their loss, once there are questions
HELD_OUT_PER_KIND = 40
TEMPLATE = Path(__file__).with_name("chat_template.jinja")
_AHEAD = 4  # batches that wait


class Training(SharedTraining):
    fall = 0.5

    def __init__(
        self, model: Qwen3VLForConditionalGeneration, tokenizer: Tokenizer, steps: int, seeing_steps: int, seed: int = 0
    ) -> None:
        """Teach only the eyes in the first `seeing_steps` of all steps."""
        self.model, self.tokenizer, self.seed, self.seeing_steps = model, tokenizer, seed, seeing_steps
        self.seeing = Seeing(model.config.text_config.hidden_size)
        self.rights: Rights = defaultdict(list)  # since they were shown last
        self.held_out: dict[str, Batch] = {}
        super().__init__({"model": model, "seeing": self.seeing}, steps)

    def batches(self) -> Generator[Batch | Shown, None, None]:
        context = get_context("spawn")
        waiting: Queue = context.Queue(_AHEAD)
        made = (waiting, self.tokenizer.to_str(), self.seed, self.done, self.seeing_steps)
        painter = context.Process(target=paint, args=made, daemon=True)
        painter.start()
        compile_small_operations(self.model)
        try:
            while True:
                yield waiting.get()
        finally:
            painter.terminate()

    def losses(self, batch: Batch | Shown) -> tuple[Tensor, ...]:
        return (self._seen(batch) if isinstance(batch, Shown) else self._answered(batch),)

    def _seen(self, shown: Shown) -> Tensor:
        with computing():
            rows = self.model.model.visual(pixel_values(shown.pixels), grid_thw=shown.grids).pooler_output
        return self._seeing_loss(rows, shown)

    def _answered(self, batch: Batch) -> Tensor:
        logits, rows = self._logits(batch)
        for kind, right in zip(batch.kinds, batch_rights(logits, batch)):
            self.rights[kind].append(right)
        return functional.cross_entropy(logits, batch.targets) + SEEING_SHARE * self._seeing_loss(rows, batch.shown)

    def _seeing_loss(self, rows: Tensor, shown: Shown) -> Tensor:
        self.rights["seeing"].append(self.seeing.rights(rows, shown.targets))
        return self.seeing.loss(rows, shown.targets)

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

    def measured(self) -> str:
        training, self.rights = dict(sorted(self.rights.items())), defaultdict(list)
        return f"training {shares(training)}\nheld-out {shares(self.held_out_rights())}"

    @torch.no_grad()
    def held_out_rights(self) -> Rights:
        if not self.held_out:  # drawn once: most drawings have nothing to ask that is held out
            for kind in KINDS:
                asked = held_out(kind, HELD_OUT_PER_KIND, "while training")
                self.held_out[kind] = held_out_batch(self.tokenizer, asked)
        return {kind: batch_rights(self._logits(batch)[0], batch) for kind, batch in self.held_out.items()}

    def export(self, folder: Path) -> None:
        # The output layer is the embedding table, which published checkpoints hold once.
        tensors = {name: tensor for name, tensor in self.model.state_dict().items() if name != "lm_head.weight"}
        write_published(folder, published_config(self.tokenizer), tensors, self.tokenizer, TEMPLATE)
        write_json(folder / "preprocessor_config.json", preprocessor_config())


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
    """Pixels as the processor gives them: from -1 to 1, the one frame twice."""
    values = (frame.float() / 127.5 - 1).view(-1, 3, 1, PATCH * PATCH)
    return values.expand(-1, -1, FRAMES, -1).flatten(1)


def batch_rights(logits: Tensor, batch: Batch) -> list[float]:
    return rights_of(logits, batch.targets, batch.owners, len(batch.kinds))
