"""Drives a runner of a model that sees by plans written by hand: how much of which medium is encoded in which step.

`check_sees` holds a model to transformers' by what it makes of scenes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from builders.runner_harness import SlottedRunner, no_mask, slotted_runner
from builders.seeing_scenes import Scene
from torch import Tensor

from penstock.kernels.torch.arrays import tensor_of
from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.media import Encode, MediaRows
from penstock.protocol.messages import NewSlot, StepPlan
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column, float_values, values
from penstock.worker.start.model import Model

_TOP = 5  # log-probabilities of each token


@dataclass
class Seen:
    """A scene's answer so far."""

    scene: Scene
    positions: bytes
    slot: int
    entries: list[int]  # of its media
    tokens: list[int] = field(default_factory=list)
    logprobs: list[dict[int, float]] = field(default_factory=list)  # of each token those of the likeliest
    num_computed: int = 0
    num_blocks: int = 0

    @property
    def num_known(self) -> int:
        return len(self.scene.tokens) + len(self.tokens)

    def rows(self, row: int, start: int, end: int) -> Iterator[MediaRows]:
        """Of the tokens from start to end."""
        for entry, medium in zip(self.entries, self.scene.media, strict=True):
            before = 0
            for first, length in medium.spans:
                low, high = max(first, start), min(first + length, end)
                if low < high:
                    yield MediaRows(row, low - start, high - low, entry, before + low - first)
                before += length


class SeeingRunner:
    """Groups of layers with blocks, the same in each; greedy, with the log-probabilities of so many tokens."""

    def __init__(self, runner: SlottedRunner, top: int | None = _TOP) -> None:
        self.runner = runner
        self.top = top
        self.free = list(range(runner.table.groups[0].num_blocks))[::-1]
        self.number = self.num_entries = 0
        self.seen: list[Seen] = []

    def enter(self, scene: Scene, positions: bytes, entries: list[int] | None = None) -> Seen:
        """With entries, media were encoded for another scene."""
        if entries is None:
            entries = [self.num_entries + number for number in range(len(scene.media))]
            self.num_entries += len(entries)
        seen = Seen(scene, positions, len(self.seen), entries)
        self.seen.append(seen)
        return seen

    def encode(self, seen: Seen, steps: int = 1) -> None:
        """Media one after another, in so many steps each."""
        for entry, medium in zip(seen.entries, seen.scene.media, strict=True):
            for first in range(steps):
                self.step([], [medium.encode(entry, first, 1, steps)])

    def rows_of(self, seen: Seen) -> list[Tensor]:
        """Return the encoded rows of each of its media."""
        media = self.runner.media
        return [_tensor(media.rows[media._of_entries[entry]]) for entry in seen.entries]

    def step(self, rows: list[tuple[Seen, int]], encodes: list[Encode] = [], dropped: list[int] = []) -> None:  # noqa: B006
        """So many tokens of each."""
        new, media, blocks, offsets = [], [], [], [0]
        for row, (seen, count) in enumerate(rows):
            end = seen.num_computed + count
            media += seen.rows(row, seen.num_computed, end)
            needed = -(-end // self.runner.table.block_size)
            blocks += [self.free.pop() for _ in range(needed - seen.num_blocks)]
            offsets.append(len(blocks))
            if seen.num_computed == 0:
                params = SamplingParams(temperature=0, logprobs=self.top)
                prompt = seen.scene.tokens
                new.append(NewSlot(seen.slot, column(prompt), len(prompt), 0, params, 7, 0, positions=seen.positions))
            seen.num_blocks, seen.num_computed = needed, end
        self.number += 1
        result = self.runner.step(
            StepPlan(
                self.number, column(seen.slot for seen, _ in rows), column(count for _, count in rows),
                [GroupChanges(column(blocks), column(offsets)) for _ in self.runner.table.groups], new=new,
                encodes=encodes, media=media, dropped_entries=column(dropped),
            ),
            no_mask,
        )  # fmt: skip
        assert not result.failed
        tokens = iter(values(result.sampled))
        for (seen, _), count in zip(rows, values(result.num_sampled), strict=True):
            seen.tokens += [next(tokens) for _ in range(count)]
        for entry in result.logprobs:
            seen = rows[entry.owner][0]
            likeliest = zip(values(entry.token_ids)[1:], float_values(entry.logprobs)[1:], strict=True)
            seen.logprobs.append(dict(likeliest))

    def answer(self, rows: list[Seen], count: int, budget: int) -> None:
        """Extend each by so many greedy tokens, prompts in chunks within the budget."""
        while waiting := [seen for seen in rows if len(seen.tokens) < count]:
            plan, left = [], budget
            for seen in waiting:
                if take := self.chunk(seen, left):
                    plan.append((seen, take))
                    left -= take
            self.step(plan)

    def chunk(self, seen: Seen, budget: int) -> int:
        """How many tokens it computes next: with a whole span or none of it, where its rows see one another."""
        end = seen.num_computed + min(seen.num_known - seen.num_computed, budget)
        if self.runner.model.config.vision.family.has_whole_spans:
            for first, length in (span for medium in seen.scene.media for span in medium.spans):
                if first < end < first + length:
                    end = first
        return end - seen.num_computed


def check_sees(
    reference: Any, model: Model, scenes: list[Scene], *, steps: int = 2, num_tokens: int = 64, budget: int = 40
) -> None:
    """Rows of media, greedy tokens and their log-probabilities are those of transformers' model."""
    assert model.report.leftovers == []
    runner, colours = SeeingRunner(slotted_runner(model, max_model_len=512, num_blocks=128)), colours_of(model)
    seen = [runner.enter(scene, scene.positions(reference)) for scene in scenes]
    for each in seen:
        runner.encode(each, steps)
        for medium, found in zip(each.scene.media, runner.rows_of(each), strict=True):
            with torch.inference_mode():
                expected = each.scene.encoded(reference, medium, colours)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    runner.answer(seen, num_tokens, budget)
    for number, each in enumerate(seen):
        logits = logits_behind(reference, model, each.scene, each.tokens)
        assert logits.argmax(-1).tolist() == each.tokens, f"scene {number}"
        expected = logits.log_softmax(-1)
        for place, likeliest in enumerate(each.logprobs):
            off = max(abs(expected[place, token].item() - logprob) for token, logprob in likeliest.items())
            assert off < 1e-3, f"scene {number}, token {place}"


def logits_behind(reference: Any, model: Model, scene: Scene, answer: list[int]) -> Tensor:
    """[answer, vocabulary]: transformers' for each token of an answer."""
    whole = torch.tensor([scene.tokens + answer])
    with torch.inference_mode():
        found = reference(whole, **scene.inputs(colours_of(model), whole.shape[1]))
    return found.logits[0, len(scene.tokens) - 1 : -1]


def colours_of(model: Model) -> Any:
    """Return the mean and deviation by which pixels are scaled."""
    return model.config.vision.image_colours


def _tensor(rows: Any) -> Tensor:
    return rows if isinstance(rows, Tensor) else tensor_of(rows)
