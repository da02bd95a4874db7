"""A pace that follows nothing but chance: prompts are held back whatever runs next to them."""

import random

from penstock.engine.admission.layers import LayeredChunks
from penstock.engine.admission.pace import Pace
from penstock.engine.scheduler import Scheduler
from penstock.engine.step import Allowance, ScheduledStep


class ErraticPace(Pace):
    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        super().__init__(scheduler.running, scheduler.waiting, scheduler.admission.followers, scheduler.in_flight)
        self.chance = random.Random(seed)

    def applies_to(self, step: ScheduledStep) -> bool:
        return bool(step.rows or self._in_flight) and self.chance.random() < 0.9

    def allowance(self, step: ScheduledStep, num_prefilling: int, most: int) -> Allowance:
        together = min(most, self.chance.choice([3, 8, 2, 20, 0]))
        return Allowance(together, -(-together // self.chance.choice([1, 2, 3])))

    def layer_work(self, num_tokens: int) -> int:
        is_in_progress = any(each.num_begun for each in self._running.prefilling)
        return self.chance.choice([1, 1, 0, 50, 400] if is_in_progress else [400, 40, 20, 20, 0])


def hold_back(scheduler: Scheduler, seed: int) -> None:
    """Let chance pace the scheduler's prompts, if they may be split, and how many layers of a chunk a step computes."""
    if scheduler.limits.enable_chunked_prefill:
        scheduler.pace = ErraticPace(scheduler, seed)
        scheduler.layers = LayeredChunks(scheduler.limits, scheduler.running, scheduler.cache, scheduler.encoder)
        scheduler.layers.unit = 2  # so that few tokens are enough for a chunk
