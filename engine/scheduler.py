"""The scheduler: plans how many tokens each sequence computes in the next step, and takes in the results.

A step is filled within its token budget: first one token for every sequence that is caught up, then chunks of the
running ones that are not, then waiting ones that pass the gates. A plan counts on tokens that are still in flight;
tokens that turn out to be surplus are dropped in `finish`, and only there.
"""

import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator

from ..protocol.messages import FailedRow, MaskFrame, Prompt, SequenceEnded, StepPlan, StepResult, Tokens, values
from ..protocol.stats import Stats
from .adapters import AdapterReference, AdapterTable
from .admission.admission import Admission
from .admission.limits import Limits
from .admission.pace import Allowance, Pace
from .admission.queue import WaitingQueue
from .counters import Counters
from .decoding.beam_decoding import BeamDecoding
from .decoding.call_decoding import CallDecoding
from .decoding.guided_decoding import GuidedDecoding
from .decoding.strategy import ActiveDecoding, PlainDecoding, end_at, refused, repetitive
from .grammar.constraint import Busy
from .grammar.constraints import Constraints
from .media.encoder import Encoder
from .memory.cache import Additions, Cache
from .memory.preemption import Preemption
from .memory.time_to_live import Clock, TimeToLive
from .publisher import Publisher
from .request import Request, Sequence
from .running import RunningBatch
from .step import ScheduledStep


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
            time_to_live=TimeToLive(limits.prefix_cache_ttl, clock),
            checkpoint_every=limits.checkpoint_every,
        )
        self.sequences: dict[int, Sequence] = {}  # all that have not ended, by id
        self.waiting = WaitingQueue()
        self.encoder = Encoder(limits.media, limits.max_num_batched_tokens)
        self.running = RunningBatch(self.cache, limits.num_slots, self.encoder)
        self.in_flight: deque[ScheduledStep] = deque()
        self.publisher = Publisher()
        self.counters = Counters()
        self.admission = Admission(
            limits, self.waiting, self.running, self.cache, self.encoder, self.in_flight, self.counters
        )
        self.pace = Pace()
        self.preemption = Preemption(self.admission, self.waiting, self.running, self.cache, self.counters)
        self.plain = PlainDecoding(self.sequences, self.running, self.waiting, self.publisher)
        self.guided = GuidedDecoding(
            self.constraints, self.plain, self.running, self.waiting, self.in_flight, self.publisher, self.counters
        )
        self.calls = CallDecoding(
            self.sequences, self.running, self.waiting, self.publisher, self.guided, self.counters
        )
        self.beams = BeamDecoding(self.sequences, self.cache, self.running, self.waiting, self.publisher, self.counters)
        self._arrivals = 0

    # --- requests come and go ---------------------------------------------------------------------------------------

    def add(self, prompt: Prompt) -> None:
        """Accept a request. One that can never be served ends at once."""
        adapter, refusal = AdapterReference(), None
        if (lora_name := prompt.params.lora_name) is not None:
            adapter, refusal = self.adapters.find(lora_name), self.adapters.refusal(lora_name)
        root = self.cache.root_of(prompt, adapter.key)
        client = self.waiting.client(prompt.client)
        request = Request(prompt, self.limits.max_model_len, root, client, adapter.place)
        refusal = refusal or self.limits.refusal(request)
        is_long = self.limits.is_long(request.num_prompt)
        for sequence in self._sequences_of(request, is_long):
            self.sequences[sequence.id] = sequence
            self._let_in(sequence, refusal or sequence.decoding.begin(sequence))

    def _let_in(self, sequence: Sequence, refusal: Busy | str | None) -> None:
        if refusal is not None:
            sequence.decoding.end(sequence, refused(sequence, refusal))
        elif not sequence.is_held:
            self.waiting.push(sequence)

    def let_in_held(self) -> None:
        """Let held sequences join the queue, in their old order, when their grammars are compiled or followed."""
        for sequence, refusal in self.guided.ready():
            self._let_in(sequence, refusal)
        self.guided.let_in_heard()

    def _sequences_of(self, request: Request, is_long: bool) -> Iterator[Sequence]:
        """The sequences of a request: one for each sample, or the first beam of a search."""
        prompt = request.prompt
        if prompt.beams is not None:
            self._arrivals += 1
            yield self.beams.first_beam(request, prompt.beams, self._arrivals, is_long)
            return
        is_free = prompt.grammar is None and prompt.params.reasoning_max_tokens is None
        for sample in range(prompt.params.n):
            self._arrivals += 1
            sequence = Sequence(request, sample, self._arrivals, is_long)
            sequence.free_decoding = self.calls if prompt.calls else self.plain
            sequence.decoding = sequence.free_decoding if is_free else self.guided
            yield sequence

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
        counters, longest = self.counters, self.cache.groups[0].pool
        return Stats(
            running=len(self.running),
            waiting=len(self.waiting) + self.constraints.num_held,
            blocks=longest.num_blocks,
            free_blocks=longest.num_free,
            steps=counters.steps,
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            generated_tokens=counters.generated_tokens,
            preemptions=counters.preemptions,
            step_seconds=counters.step_seconds,
            saved_blocks=self.cache.num_saved,
            loaded_blocks=self.cache.num_loaded,
            encoded_media=self.encoder.num_encoded,
            kv_bytes=sum(group.pool.num_blocks * group.plan.block_bytes for group in self.cache.groups),
            media_bytes=self.encoder.plan.num_rows * self.encoder.plan.row_bytes,
            used_media_bytes=self.encoder.entries.num_taken * self.encoder.plan.row_bytes,
            free_kv_bytes=sum(group.pool.num_free * group.plan.block_bytes for group in self.cache.groups),
        )

    def num_generated(self, sequence_id: int) -> int:
        """How many tokens a sequence has generated so far; 0 if it isn't here."""
        sequence = self.sequences.get(sequence_id)
        return 0 if sequence is None else max(0, sequence.num_known - sequence.num_prompt)

    # --- planning ---------------------------------------------------------------------------------------------------

    def plan(self) -> StepPlan | None:
        """The next step; None when there is nothing to compute before a result or a request comes."""
        has_dropped = self.encoder.drop_abandoned()
        while (step := self._gathered()).is_empty and not has_dropped:
            if not self._unblock():
                return None
        self.counters.steps += 1
        self.in_flight.append(step)
        freed, moves = self.running.slots.take_freed(), self.cache.take_moves()
        return step.plan(freed, moves, self.encoder.entries.take_dropped())

    def _gathered(self) -> ScheduledStep:
        step, strategies = ScheduledStep(self.counters.steps), self._active_strategies()
        self.running.settle()
        self.running.begin_step(len(self.waiting))
        self.preemption.relieve_overdue(step)
        additions = self.preemption.make_room()
        for strategy in strategies:
            strategy.before_decodes(step)
        self._plan_decodes(step, additions)
        for strategy in strategies:
            strategy.after_decodes(step, self.limits.max_num_batched_tokens - len(step.rows))
        step.num_decodes = len(step.rows)
        load = self.admission.load(step)
        if self._is_paced(step):
            load.allowance = self.pace.allowance(step, load.num_prompts, len(self.waiting), load.allowance.left)
        if self.limits.media is not None:
            self.encoder.begin_step(self._encoder_budget(step, load.allowance))
        self._plan_prefills(step, load.allowance)
        self.admission.admit(step, load)
        if load.allowance.has_pause:
            self.pace.note_pause(step)
        for strategy in strategies:
            strategy.after_admission(step)
        self.running.settle()
        return step

    def _active_strategies(self) -> list[ActiveDecoding]:
        """The strategies that take part in a step, since they have sequences; none if all requests are plain."""
        return [strategy for strategy in (self.beams, self.guided) if strategy.members]

    def _unblock(self) -> bool:
        """Preempt a sequence if none of the running ones can be planned and no result in flight will change that."""
        idle = [sequence for sequence in self.running.decoding if sequence.waits_for_host]
        return not self.in_flight and self.preemption.unblock(idle)

    def _plan_decodes(self, step: ScheduledStep, additions: dict[Sequence, Additions]) -> None:
        rows = [
            sequence
            for sequence in self.running.decoding
            if sequence.num_computed < sequence.horizon and not sequence.waits_for_host
        ]
        for sequence in rows:
            sequence.num_computed += 1
        step.add_decodes(rows, additions)

    def _plan_prefills(self, step: ScheduledStep, allowance: Allowance) -> None:
        for sequence in self.running.prefilling:
            budget = self.encoder.reach(sequence, step, sequence.num_computed, allowance.part, allowance)
            if budget:
                num_tokens, additions = self.running.advance(sequence, budget)
                if num_tokens:
                    allowance.spend(num_tokens)
                    step.add(sequence, num_tokens, additions)
                    self.encoder.note_rows(sequence, step, num_tokens)

    def _encoder_budget(self, step: ScheduledStep, allowance: Allowance) -> int:
        """How much a step may encode, in patches x layers."""
        if not step.is_paced:
            return self.limits.most_encoder_work
        if not allowance:  # it is measured
            return 0
        return self.limits.mm_encoder_budget or self.pace.encoder_budget()

    def _is_paced(self, step: ScheduledStep) -> bool:
        """Whether prompts are held back: there are some, streamed answers, too, and something else to compute."""
        has_prompts = self.running.prefilling or self.waiting
        if not (has_prompts and self.limits.enable_chunked_prefill and (step.rows or self.in_flight)):
            return False
        return any(sequence.request.prompt.is_streamed for sequence in self.running.decoding)

    # --- results ----------------------------------------------------------------------------------------------------

    def finish(self, result: StepResult) -> Tokens:
        """Take in what a step has sampled; returns the message for the detokenizer."""
        step = self._step_of(result)
        self.counters.forward_time = result.forward_time
        self.counters.step_seconds += result.forward_time
        self.pace.learn(step, result.forward_time)
        for strategy in self._active_strategies():
            strategy.before_results()
        for failed in result.failed:
            self._fail(step, failed)
        self.publisher.logprobs(step, result)
        sequence_ids, tokens = self._take_sampled(step, result)
        for entry in result.candidates:
            self.beams.hear(step.rows[entry.row], entry, result.forward_time)
        for sequence in repetitive(step, result):
            sequence.decoding.end(sequence, SequenceEnded(sequence.id, "stop", "repetition"))
        self.counters.generated_tokens += len(tokens)
        return self.publisher.take(sequence_ids, tokens, result.forward_time)

    def _take_sampled(self, step: ScheduledStep, result: StepResult) -> "tuple[list[int], array[int]]":
        """Append each row's token to its sequence, and end those that it completes. Returns the plain sequences that
        have one, and their tokens; the other strategies publish their own."""
        sequence_ids: list[int] = []
        tokens = array("i")
        sampled = iter(values(result.sampled))
        for sequence, count in zip(step.rows, values(result.num_sampled), strict=True):
            token = next(sampled) if count else None
            # Surplus: it ended while this row was in flight. Surplus tokens are dropped only here.
            if sequence.has_ended:
                continue
            # A chunk that doesn't reach the end of its known tokens, or a row whose mask did not come in time.
            if token is None or sequence in step.dropped:
                sequence.silent_time += result.forward_time
                sequence.has_news = True
                continue
            if sequence.has_news:
                self.publisher.news(sequence)
            if (take := sequence.decoding.take) is not None:
                take(step, sequence, token)
                continue
            sequence_ids.append(sequence.id)
            tokens.append(token)
            sequence.output.append(token)
            sequence.num_known = num_known = sequence.num_known + 1
            # The same test as in `end_at`: made here first, it saves a call for every token but the last.
            if (token in sequence.possible_ends or num_known >= sequence.next_look) and (
                ended := end_at(sequence, token)
            ):
                sequence.decoding.end(sequence, ended)
        return sequence_ids, tokens

    def take_mask(self) -> MaskFrame | None:
        """The masks of the oldest step in flight, if it has masked rows and they aren't sent yet."""
        step = self.in_flight[0] if self.in_flight else None
        return self.guided.masks(step) if step is not None and step.masked else None

    def _step_of(self, result: StepResult) -> ScheduledStep:
        if not self.in_flight or self.in_flight[0].number != result.step:
            expected = self.in_flight[0].number if self.in_flight else "none"
            raise RuntimeError(f"Rank 0 answered step {result.step}, and the step in flight is {expected}.")
        return self.in_flight.popleft()

    def _fail(self, step: ScheduledStep, failed: FailedRow) -> None:
        sequence = step.rows[failed.row]
        if not sequence.has_ended:
            self.cache.forget(sequence)
            self.encoder.forget(sequence)
            if sequence.is_running:
                self.running.leave(sequence, 0)
            sequence.decoding.end(
                sequence, SequenceEnded(sequence.id, "error", error_code=failed.error_code, error_msg=failed.message)
            )

    def check(self) -> None:
        """Raise unless blocks are conserved and every sequence is in exactly one place; tests call it after steps."""
        running = [each for each in self.sequences.values() if each.is_running]
        self.running.check(running)
        self.cache.check(running)
        self.encoder.check(running)
        for strategy in (self.beams, self.guided):
            if strategy.members != {each for each in self.sequences.values() if each.decoding is strategy}:
                raise RuntimeError(f"{type(strategy).__name__} has other members than the sequences that it decodes.")
        waiting = [each for each in self.sequences.values() if each.is_waiting]
        if len(waiting) != len(self.waiting):
            raise RuntimeError(f"{len(self.waiting)} sequences are counted as waiting, and {len(waiting)} are.")
        for sequence in self.sequences.values():
            is_somewhere = self.admission.is_awaited(sequence) or self.beams.is_idle(sequence)
            if sequence.is_running == sequence.is_waiting and not is_somewhere and not sequence.is_held:
                raise RuntimeError(f"Sequence {sequence.id} is nowhere: {sequence.num_known} tokens are known.")
