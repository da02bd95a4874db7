"""The scheduler: plans how many tokens each sequence computes in the next step, and takes in the results.

A step is filled within its token budget: first one token for every decoding sequence, then chunks of prefilling ones,
then waiting ones that pass the gates. A plan assumes the tokens that are still in flight; those that turn out to be
surplus are dropped when they arrive, and only then.
"""

import time
from collections import deque
from collections.abc import Iterable

from ..protocol.messages import Drafts, FailedRow, MaskFrame, Prompt, SequenceEnded, StepPlan, StepResult, Tokens
from ..protocol.stats import Stats
from ..protocol.wire import values
from .adapters import AdapterTable
from .admission.admission import Admission
from .admission.gates import StepLoad
from .admission.layers import LayeredChunks
from .admission.limits import Limits
from .admission.pace import Pace
from .admission.queue import WaitingQueue
from .arrivals import Arrivals
from .counters import Counters
from .decoding.beam_decoding import BeamDecoding
from .decoding.call_decoding import CallDecoding
from .decoding.guided_decoding import GuidedDecoding
from .decoding.participant import Participant
from .decoding.pooled import PooledDecoding
from .decoding.speculation import Speculation
from .decoding.strategy import PlainDecoding, repetitive
from .grammar.constraints import Constraints
from .media.encoder import Encoder
from .memory.cache import Additions, Cache
from .memory.preemption import Preemption
from .memory.time_to_live import Clock, TimeToLive
from .publisher import Publisher
from .request import Sequence
from .running import RunningBatch
from .step import Allowance, ScheduledStep


class Scheduler:
    def __init__(
        self,
        limits: Limits,
        *,
        shares_prefixes: bool = True,
        adapters: AdapterTable | None = None,
        constraints: Constraints | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.limits = limits
        self.adapters = adapters or AdapterTable.none()
        self.constraints = constraints or Constraints.none()
        self.cache = Cache(
            limits.groups,
            limits.block_size,
            shares_prefixes=shares_prefixes,
            stretches=limits.stretches,
            time_to_live=None if limits.prefix_cache_ttl is None else TimeToLive(limits.prefix_cache_ttl, clock),
            checkpoint_every=limits.checkpoint_every,
            num_disks=limits.num_disks,
            clock=clock,
        )
        self.adapters.on_loaded = self.cache.show_adapter
        self.adapters.on_unloaded = self.cache.forget_adapter
        self.sequences: dict[int, Sequence] = {}  # all that have not ended, by id
        self.waiting = WaitingQueue()
        self.encoder = Encoder(limits.media, limits.max_num_batched_tokens)
        if limits.media is not None and self.cache.disk is not None:
            self.encoder.kept = self.cache.disk.keep_rows(self.encoder.entries)
        self.running = RunningBatch(self.cache, limits.num_slots, self.encoder)
        self.in_flight: deque[ScheduledStep] = deque()
        self.publisher = Publisher()
        self.counters = Counters()
        self.admission = Admission(
            limits, self.waiting, self.running, self.cache, self.encoder, self.in_flight, self.counters
        )
        # From the first request whose answer is streamed, if prompts may be split:
        self.pace: Pace | None = None
        self.layers: LayeredChunks | None = None  # if workers can compute a chunk layer by layer
        self.preemption = Preemption(
            self.admission, self.waiting, self.running, self.cache, self.counters, self.in_flight
        )
        plain = (self.sequences, self.running, self.waiting, self.publisher, self.preemption.restart)
        self.plain = PlainDecoding(*plain)
        self.guided = GuidedDecoding(
            self.constraints, self.plain, self.running, self.waiting, self.in_flight, self.publisher, self.counters
        )
        if limits.draft_limits is not None:
            self.plain.speculation = Speculation(
                limits,
                limits.draft_limits,
                self.cache,
                self.counters,
                self.running,
                self.publisher,
                self.preemption,
            )
        self.calls = CallDecoding(*plain, self.guided, self.counters)
        self.pooled = PooledDecoding(*plain)
        self.beams = BeamDecoding(self.sequences, self.cache, self.running, self.waiting, self.publisher, self.counters)
        self.arrivals = Arrivals(
            limits, self.adapters, self.cache, self.sequences, self.waiting,
            plain=self.plain, guided=self.guided, calls=self.calls, beams=self.beams, pooled=self.pooled,
        )  # fmt: skip

    # --- requests come and go ---------------------------------------------------------------------------------------

    def add(self, prompt: Prompt) -> None:
        """Accept a request. One that can never be served ends at once."""
        if prompt.is_streamed and self.pace is None and self.limits.enable_chunked_prefill:
            self.pace = Pace(self.running, self.waiting, self.admission.followers, self.in_flight)
            if self.limits.num_layers:
                self.layers = LayeredChunks(self.limits, self.running, self.cache, self.encoder)
        self.arrivals.add(prompt)

    def abort(self, sequence_ids: Iterable[int]) -> None:
        """End these sequences; unknown ones have ended already and are ignored."""
        for sequence_id in sequence_ids:
            if (sequence := self.beams.beam_for(sequence_id) or self.sequences.get(sequence_id)) is not None:
                sequence.decoding.end(
                    sequence, SequenceEnded(sequence.id, "abort", error_code=499, error_msg="The request was aborted.")
                )

    def take_ends(self) -> Tokens | None:
        """The message for sequences that have ended without a step, if there are any."""
        return self.publisher.take_ends() if self.publisher.has_ends else None

    def stats(self) -> Stats:
        num_waiting = len(self.waiting) + len(self.admission.followers.waiting) + self.constraints.num_held
        if self.cache.disk is not None:
            num_waiting += len(self.cache.disk.fetches)
        stats = self.counters.stats(len(self.running), num_waiting, self.cache, self.encoder)
        stats.num_slots, stats.max_loras = self.limits.num_slots, self.adapters.max_loras
        if self.adapters.max_loras:
            for names, is_running in ((stats.running_loras, True), (stats.waiting_loras, False)):
                of_sequences = (each for each in self.sequences.values() if each.is_running is is_running)
                found = {each.request.prompt.params.lora_name for each in of_sequences}
                names += sorted(name for name in found if name is not None)
        return stats

    def num_generated(self, sequence_id: int) -> int:
        """How many tokens a sequence has generated so far; 0 if it isn't here."""
        sequence = self.sequences.get(sequence_id)
        return 0 if sequence is None else max(0, sequence.num_known - sequence.num_prompt)

    # --- planning ---------------------------------------------------------------------------------------------------

    def plan(self) -> StepPlan | None:
        """The next step; None when there is nothing to compute before a result or a request comes."""
        sees = self.limits.media is not None
        has_dropped = sees and self.encoder.drop_abandoned()
        disk = self.cache.disk
        while (step := self._gathered()).is_empty and not has_dropped and not (disk is not None and disk.has_orders):
            if not self._unblock():
                return None
        self.counters.note_step(sum(step.num_tokens))
        self.in_flight.append(step)
        step.disk = None if disk is None else disk.take_orders()
        freed, moves = self.running.slots.take_freed(), self.cache.take_moves()
        return step.plan(freed, moves, self.encoder.entries.take_dropped() if sees else [])

    def last_plan(self) -> StepPlan | None:
        """A plan without rows after which none follows: it has written to disk what is left for that."""
        if (disk := self.cache.disk) is None:
            return None
        disk.stores.end()
        step = ScheduledStep(self.counters.steps)
        step.disk = disk.take_orders()
        return None if step.disk is None else step.plan([], self.cache.take_moves(), [])

    def _gathered(self) -> ScheduledStep:
        step, strategies = ScheduledStep(self.counters.steps), self._active_strategies()
        self.running.settle()
        if self.admission.followers.waiting:
            self.admission.take_back_followers()
        self.running.begin_step(len(self.waiting))
        if (overdue := self.admission.overdue(step)) is not None:
            self.preemption.relieve(overdue)
        additions = self._grow()
        for strategy in strategies:
            strategy.before_decodes(step)
        self._plan_decodes(step, additions)
        for strategy in strategies:
            strategy.after_decodes(step, self.limits.max_num_batched_tokens - len(step.rows))
        step.num_decodes = len(step.rows)
        load = self.admission.load(step)
        if self.pace is not None:
            self._pace_prompts(self.pace, step, load)
        if self.limits.media is not None:
            self.encoder.begin_step(self._encoder_budget(step, load.allowance))
        if self.layers is not None and self.pace is not None and load.long:
            self.layers.go_on(step, load, self.pace.layer_work(load.allowance.part) if step.is_paced else None)
        self.admission.go_on(step, load)
        self.admission.admit(step, load)
        if self.pace is not None and load.allowance.has_pause:
            self.pace.note_pause(step)
        for strategy in strategies:
            strategy.after_admission(step)
        self.running.settle()
        return step

    def _active_strategies(self) -> list[Participant]:
        """Return what takes part in a step: speculation, if there is any, and the strategies that have sequences."""
        active: list[Participant] = [strategy for strategy in (self.beams, self.guided) if strategy.members]
        # First, as masks are for all the tokens that a row may draw.
        return active if self.plain.speculation is None else [self.plain.speculation, *active]

    def _unblock(self) -> bool:
        """Make another plan possible: with states that are free in the next one, or by preempting a sequence if none of
        the running ones can be planned and nothing on its way will change that."""
        if self.in_flight:
            return False
        if self.cache.holds_for_next_step:
            return True
        if not len(self.running) or self.encoder.awaits_rows:
            return False
        return self.preemption.unblock()

    def _grow(self) -> dict[Sequence, Additions]:
        """Give blocks to each sequence whose tables are full, preempting others if need be.

        The blocks are returned by sequence, not by slot: a sequence that got blocks may be preempted for the next one,
        and a beam may take its slot.
        """
        additions: dict[Sequence, Additions] = {}
        for sequence in self.running.at_horizon():
            end = sequence.num_computed + 1
            if not sequence.is_running:  # it has left, or was preempted for an earlier one
                continue
            # Before it waits for its last token, or takes blocks from others, its drafts are checked.
            if sequence.num_doubtful and (end > self.cache.bound(sequence) or not self.cache.has_room(sequence, end)):
                continue
            if self.cache.has_outgrown_its_stretch(sequence):
                self.preemption.preempt(sequence)
            elif sequence.num_computed >= self.cache.capacity:
                self.admission.end_outgrown(sequence)
            elif (self.cache.has_room(sequence, end) or self.preemption.make_room(sequence, end)) and (
                grown := self.cache.extend(sequence, end)
            ):
                additions[sequence] = grown
        self.running.settle()
        return additions

    def _plan_decodes(self, step: ScheduledStep, additions: dict[Sequence, Additions]) -> None:
        rows = [
            sequence
            for sequence in self.running.decoding
            if sequence.num_computed < sequence.horizon and not sequence.waits_for_host
        ]
        for sequence in rows:
            sequence.num_computed += 1
        step.add_decodes(rows, additions)

    def _pace_prompts(self, pace: Pace, step: ScheduledStep, load: StepLoad) -> None:
        """Hold prompts back for streamed answers, if there are any."""
        step.is_paced = pace.applies_to(step)
        if self.layers is not None:
            load.long, load.prompts = self.layers.prompts(step)
        if step.is_paced:
            num_computed = load.num_prompts - len(load.long[1:])
            load.allowance = pace.allowance(step, num_computed, load.allowance.left)

    def _encoder_budget(self, step: ScheduledStep, allowance: Allowance) -> int:
        """How much a step may encode, in patches x layers."""
        if self.pace is None or not step.is_paced:
            return self.limits.most_encoder_work
        if not allowance:  # the step is a measurement
            return 0
        return self.limits.mm_encoder_budget or self.pace.encoder_budget()

    # --- results ----------------------------------------------------------------------------------------------------

    def finish(self, result: StepResult) -> Tokens:
        """Take in the sampled tokens of a step; returns the message for the detokenizer."""
        step = self._step_of(result)
        self.counters.forward_time = result.forward_time
        self.counters.step_seconds += result.forward_time
        if self.pace is not None:
            self.pace.learn(step, result.forward_time)
        for strategy in self._active_strategies():
            strategy.before_results(step, result)
        self.publisher.logprobs(step, result)
        sequence_ids, tokens = self.plain.take_step(step, result)
        for failed in result.failed:
            self._fail(step, failed)
        for entry in result.candidates:
            self.beams.take_in(step.rows[entry.row], entry, result.forward_time)
        for vectors in result.vectors:
            self.pooled.take_in(step.rows[vectors.owner], vectors)
        for sequence in repetitive(step, result):
            sequence.decoding.end(sequence, SequenceEnded(sequence.id, "stop", "repetition"))
        self.counters.generated_tokens += len(tokens)
        return self.publisher.take(sequence_ids, tokens, result.forward_time)

    def take_mask(self) -> MaskFrame | None:
        """The masks of the oldest step in flight, if it has masked rows whose drafts are known and they aren't sent
        yet."""
        step = self.in_flight[0] if self.in_flight else None
        return self.guided.masks(step) if step is not None and step.masked and not step.awaits_drafts else None

    def take_drafts(self, drafts: Drafts) -> None:
        """Note the drafts of a step's masked rows."""
        step = next(each for each in self.in_flight if each.number == drafts.step)
        step.drafts = dict(zip(drafts.rows, map(values, drafts.token_ids), strict=True))

    def _step_of(self, result: StepResult) -> ScheduledStep:
        if not self.in_flight or self.in_flight[0].number != result.step:
            expected = self.in_flight[0].number if self.in_flight else "none"
            raise RuntimeError(f"Rank 0 answered step {result.step}, and the step in flight is {expected}.")
        return self.in_flight.popleft()

    def _fail(self, step: ScheduledStep, failed: FailedRow) -> None:
        sequence = step.rows[failed.row]
        if sequence.has_ended or sequence in step.dropped:
            return
        self.cache.forget(sequence)
        if sequence.media is not None:
            self.encoder.forget(sequence)
        if self.plain.speculation is not None and self.plain.speculation.computes_again(step, failed.row):
            return
        if sequence.is_running:
            self.running.leave(sequence, 0)
        sequence.decoding.end(
            sequence, SequenceEnded(sequence.id, "error", error_code=failed.error_code, error_msg=failed.message)
        )

    def check(self) -> None:
        """Raise unless blocks are conserved and every sequence is in exactly one state; tests call it after steps."""
        running = [each for each in self.sequences.values() if each.is_running]
        self.running.check(running)
        self.cache.check(running)
        self.encoder.check(running)
        if self.plain.speculation is not None:
            self.plain.speculation.check(running, self.in_flight)
        for strategy in (self.beams, self.guided):
            if strategy.members != {each for each in self.sequences.values() if each.decoding is strategy}:
                raise RuntimeError(f"{type(strategy).__name__} has other members than the sequences that it decodes.")
        waiting = [each for each in self.sequences.values() if each.is_waiting]
        if len(waiting) != len(self.waiting):
            raise RuntimeError(f"{len(self.waiting)} sequences are counted as waiting, and {len(waiting)} are.")
        for sequence in self.sequences.values():
            is_somewhere = self.admission.is_awaited(sequence) or self.beams.is_idle(sequence)
            is_somewhere = is_somewhere or sequence in self.admission.followers.waiting
            if self.cache.disk is not None:
                is_somewhere = is_somewhere or sequence in self.cache.disk.fetches
            if sequence.is_running == sequence.is_waiting and not is_somewhere and not sequence.is_held:
                raise RuntimeError(f"Sequence {sequence.id} is nowhere: {sequence.num_known} tokens are known.")
