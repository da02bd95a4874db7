"""Plans the prompts of a step: the next chunks of running sequences, and the first chunks of those it admits.

It also chooses the sequence to preempt for one that has waited too long.
"""

import time
from collections import deque

from ...protocol.messages import SequenceEnded
from ..counters import Counters
from ..media.encoder import Encoder
from ..memory.cache import Cache, Match
from ..request import Sequence
from ..running import RunningBatch
from ..step import Allowance, ScheduledStep, new_slot
from .followers import Followers
from .gates import Demand, FreeBlocks, StepLoad, gates
from .limits import Limits
from .queue import WaitingQueue, victim


class Admission:
    def __init__(
        self,
        limits: Limits,
        waiting: WaitingQueue,
        running: RunningBatch,
        cache: Cache,
        encoder: Encoder,
        in_flight: deque[ScheduledStep],
        counters: Counters,
    ) -> None:
        self._max_num_batched_tokens = limits.max_num_batched_tokens
        self._most_long = limits.max_long
        self._has_whole_texts = limits.has_whole_texts
        self._waiting = waiting
        self._running = running
        self._cache = cache
        self._fetches = None if cache.disk is None else cache.disk.fetches
        self._encoder = encoder
        self._in_flight = in_flight
        self._counters = counters
        self.followers = Followers(limits.block_size)
        self._gates = gates(limits)
        self._free_blocks = FreeBlocks(limits.static_decode_blocks)
        self.started: list[int] = []  # requests in the planned step whose start is still to be reported

    def load(self, step: ScheduledStep) -> StepLoad:
        prompts = self._running.prefilling
        tokens_left = self._max_num_batched_tokens - sum(step.num_tokens) - step.num_reserved
        return StepLoad(
            num_running=len(self._running),
            allowance=Allowance(tokens_left, tokens_left, is_by_text=self._has_whole_texts),
            prompts=prompts,
            num_prompts=len(prompts),
            num_long=sum(sequence.is_long for sequence in prompts),
            prompt_blocks=self._cache.num_held(prompts),
        )

    def go_on(self, step: ScheduledStep, load: StepLoad) -> None:
        """Plan the next chunks of running prompts."""
        for sequence in load.prompts:
            budget = load.allowance.part
            if (media := sequence.media) is not None:
                budget = self._encoder.reach(sequence, media, step, sequence.num_computed, budget, load.allowance)
            if budget:
                load.allowance.spend(self._running.advance(sequence, step, budget))

    def admit(self, step: ScheduledStep, load: StepLoad) -> None:
        """Admit waiting sequences in order until one can't be admitted. None may overtake it, so none starves; only
        those are passed over whose prefix is being computed, and their slots are left to them."""
        leaders = [sequence for sequence in self._running.prefilling if sequence.num_left]
        while self._waiting and load.allowance and self._running.slots.num_free > len(self.followers.waiting):
            sequence = self.next(load)
            if sequence is None or self.is_in_flight(sequence):
                return
            if sequence.num_known > self._cache.capacity:
                self.end_outgrown(sequence)  # the token that no longer fits was in flight when it was preempted
                continue
            match = self._cache.match(sequence)
            if leaders and self.followers.follow(sequence, match, leaders):
                self._waiting.leave(sequence)
                continue
            demand = self.demand(sequence, match)
            budget = load.allowance.first_part(demand.num_left)
            if match.is_coming or not budget or not self.admits(demand, load):
                return
            if self._fetches is not None and (absent := self._fetches.absent(sequence, match.found)):
                if self._fetches.begin(sequence, match.found, absent):
                    self._waiting.leave(sequence)
                continue
            if (media := sequence.media) is not None:
                position = match.length * self._cache.block_size
                budget = self._encoder.reach(sequence, media, step, position, budget, load.allowance)
                if not budget:  # none may overtake one whose next token is a media row that isn't encoded
                    self._encoder.release(sequence)
                    return
            self._waiting.pop(sequence)
            load.take(demand, self._enter(sequence, match, step, budget))
            if sequence.num_left:
                leaders.append(sequence)

    def take_back_followers(self) -> None:
        """Queue those again, in their old order, whose prefix is there."""
        for sequence in self.followers.released():
            self._waiting.push(sequence)

    def is_in_flight(self, sequence: Sequence) -> bool:
        """A preempted sequence may enter a slot again only when no step in flight still has a token of it."""
        return sequence.was_preempted and self.is_awaited(sequence)

    def is_awaited(self, sequence: Sequence) -> bool:
        return any(sequence in step.rows for step in self._in_flight)

    def _enter(self, sequence: Sequence, match: Match, step: ScheduledStep, budget: int) -> int:
        """Admit the sequence and plan its first chunk; returns the chunk's number of tokens."""
        sequence.looks_on_disk = False
        if sequence.start_time is None:
            self._count_start(sequence, match.length * self._cache.block_size)
        sequence.prompt_logprobs_to_skip = sequence.prompt_logprobs_sent
        entered = self._running.enter(sequence, match)
        step.new.append(new_slot(sequence, self._cache.rotation_start(sequence)))
        return self._running.advance(sequence, step, budget, entered)

    def _count_start(self, sequence: Sequence, num_cached: int) -> None:
        sequence.start_time = time.time()
        num_cached = min(num_cached, sequence.num_prompt)  # it may have found tokens that were said before
        if sequence.request.num_cached is None:  # later samples find what their siblings have computed
            sequence.request.num_cached = num_cached
            if sequence.request.prompt.reports_start:
                self.started.append(sequence.request.prompt.request_id)
        self._counters.prompt_tokens += sequence.num_prompt
        self._counters.cached_tokens += num_cached

    def end_outgrown(self, sequence: Sequence) -> None:
        """End a sequence that alone fills the whole pool, once all its tokens are here: timing must not matter."""
        if self.is_awaited(sequence):
            return
        message = self._cache.outgrown(sequence.num_known)
        sequence.decoding.end(sequence, SequenceEnded(sequence.id, "error", error_code=429, error_msg=message))

    def next(self, load: StepLoad) -> Sequence | None:
        """The sequence to admit next; it stays in the queue."""
        has_lane = self._most_long is None or load.num_long < self._most_long
        return self._waiting.first(including_long=has_lane)

    def demand(self, sequence: Sequence, match: Match) -> Demand:
        num_left = sequence.num_given - match.length * self._cache.block_size
        return Demand(sequence, num_left, self._cache.needs(sequence, match))

    def admits(self, demand: Demand, load: StepLoad) -> bool:
        return all(gate.admits(demand, load) for gate in self._gates)

    def overdue(self, step: ScheduledStep) -> Sequence | None:
        """The next sequence, if its client has nothing running and has waited long for a slot or for blocks."""
        self._waiting.num_steps = step.number
        if not self._waiting.may_be_overdue:
            return None
        load = self.load(step)
        sequence = self.next(load)
        if sequence is None or not self._waiting.is_overdue(sequence):
            return None
        demand = self.demand(sequence, self._cache.match(sequence))
        has_room = self._running.has_free_slot and self._free_blocks.admits(demand, load)
        return None if has_room else sequence

    def to_give_way(self, waiting: Sequence) -> Sequence | None:
        """The running sequence to preempt for a waiting one: of a lower priority, or of the same and not its client's
        only one."""
        priority = waiting.order[0]
        running = [
            sequence
            for sequence in self._running.decoding + self._running.prefilling
            if sequence.is_running and sequence.order[0] >= priority + (sequence.client.num_running == 1)
        ]
        return victim(running) if running else None
