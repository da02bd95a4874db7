"""Who is admitted to a step next, what that takes, and who gives up a place where one has waited too long for it.

Knows nothing of what is done with who is admitted.
"""

from .cache import Cache, Found
from .limits import Candidate, FreeBlocks, Limits, Load, gates
from .queue import WaitingQueue, victim
from .request import Sequence
from .running import Running
from .step import Step


class Admission:
    def __init__(self, limits: Limits, waiting: WaitingQueue, running: Running, cache: Cache) -> None:
        self._max_num_batched_tokens = limits.max_num_batched_tokens
        self._most_long = limits.max_long
        self._waiting = waiting
        self._running = running
        self._cache = cache
        self._gates = gates(limits)
        self._free_blocks = FreeBlocks(limits.static_decode_blocks)

    def load(self, step: Step) -> Load:
        prompts = self._running.prefilling
        return Load(
            num_running=len(self._running),
            num_free=self._cache.num_free,
            tokens_left=self._max_num_batched_tokens - sum(step.num_tokens),
            num_prompts=len(prompts),
            num_long=sum(sequence.is_long for sequence in prompts),
            prompt_blocks=sum(len(sequence.block_ids) for sequence in prompts),
        )

    def next(self, load: Load) -> Sequence | None:
        """Stays in the queue."""
        return self._waiting.first(including_long=self._most_long is None or load.num_long < self._most_long)

    def candidate(self, sequence: Sequence, found: Found) -> Candidate:
        num_blocks = self._cache.blocks_for(sequence.num_known)
        num_left = sequence.num_known - len(found) * self._cache.block_size
        return Candidate(sequence, num_left, num_blocks, self._cache.blocks_taken(num_blocks, found))

    def admits(self, candidate: Candidate, load: Load) -> bool:
        return all(gate.admits(candidate, load) for gate in self._gates)

    def overdue(self, step: Step) -> Sequence | None:
        """The next one, where its client has nothing running and has waited long for a slot or for blocks."""
        self._waiting.num_steps = step.number
        if not self._waiting.may_be_overdue:
            return None
        load = self.load(step)
        sequence = self.next(load)
        if sequence is None or not self._waiting.is_overdue(sequence):
            return None
        candidate = self.candidate(sequence, self._cache.match(sequence))
        has_place = self._running.has_free_slot and self._free_blocks.admits(candidate, load)
        return None if has_place else sequence

    def to_give_way(self, waiting: Sequence) -> Sequence | None:
        """To one of another client: who is no more important than it, and not the only one of its own client."""
        running = [
            sequence
            for sequence in self._running.decoding + self._running.prefilling
            if sequence.is_running and sequence.client.num_running > 1 and sequence.rank[0] >= waiting.rank[0]
        ]
        return victim(running) if running else None
