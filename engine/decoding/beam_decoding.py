"""Carries out the decisions of beam searches: forks, continues or drops beams, and publishes the best as samples.

To the scheduler a beam is a sequence like any other; the differences are handled here. A beam's next token is decided
when all beams of its search have returned candidates, so it is never planned ahead, and while it waits it can give up
its slot and blocks without losing anything. Beams that continue one parent share its full blocks and copy the last one.
If there is no free slot or block for a new beam, it waits like a preempted sequence and recomputes what is not cached.
`beams.py` chooses the beams.
"""

from array import array

import msgspec

from ...protocol.messages import Candidates, SequenceEnded, request_and_sample
from ...protocol.parameters.beams import BeamSearchParams
from ..admission.queue import WaitingQueue
from ..counters import Counters
from ..memory.cache import Cache
from ..publisher import Publisher
from ..request import Request, Sequence
from ..running import RunningBatch
from ..step import ScheduledStep
from .beams import BeamSearch, Continuation, Hypothesis
from .participant import ActiveDecoding


class BeamDecoding(ActiveDecoding):
    def __init__(
        self,
        sequences: dict[int, Sequence],
        cache: Cache,
        running: RunningBatch,
        waiting: WaitingQueue,
        publisher: Publisher,
        counters: Counters,
    ) -> None:
        super().__init__()
        self._sequences = sequences
        self._cache = cache
        self._running = running
        self._waiting = waiting
        self._publisher = publisher
        self._counters = counters
        self._searches: dict[int, BeamSearch] = {}  # by request
        # Kept until the next plan: beams whose newest token no worker has yet, and new beams with their parents.
        self._continued: list[Sequence] = []
        self._unborn: dict[Sequence, Sequence] = {}

    def first_beam(self, request: Request, params: BeamSearchParams, arrival: int, is_long: bool) -> Sequence:
        """Create the sequence that computes the prompt; it is the only beam until its candidates arrive."""
        search = BeamSearch(request, params)
        self._searches[request.prompt.request_id] = search
        beam = Sequence(request, 0, arrival, is_long)
        beam.decoding = self
        search.order = beam.order
        search.beams[beam] = 0.0
        self.members.add(beam)
        return beam

    def beam_for(self, sample: int) -> Sequence | None:
        """Any beam of the search that will produce this sample of a request."""
        search = self._searches.get(request_and_sample(sample)[0])
        return next(iter(search.beams)) if search is not None else None

    def _search_of(self, beam: Sequence) -> BeamSearch | None:
        """The search that decides its next token; None for another sequence, or if the search is over."""
        return self._searches.get(beam.request.prompt.request_id)

    def waits(self, beam: Sequence) -> bool:
        return beam.num_computed >= beam.num_known

    def num_candidates(self, beam: Sequence) -> int:
        search = self._search_of(beam)
        return 0 if search is None else search.num_candidates

    def holds_others(self, beam: Sequence) -> bool:
        """True: the beams of a search wait for one another."""
        search = self._search_of(beam)
        return search is not None and search.num_born > 0

    def is_idle(self, beam: Sequence) -> bool:
        """Whether it needs neither slot nor blocks: its candidates are here, or the next plan forks it."""
        search = self._search_of(beam)
        return search is not None and (search.has_reported(beam) or beam in self._unborn)

    def give_way(self, beam: Sequence) -> None:
        if (search := self._search_of(beam)) is not None:
            search.preemptions += 1
        if not self.is_idle(beam):
            self._waiting.push(beam)

    # --- results ----------------------------------------------------------------------------------------------------

    def take_in(self, beam: Sequence, candidates: Candidates, forward_time: float) -> None:
        """Take in the candidates of a beam. Those of a search's last beam decide its next step."""
        search = self._search_of(beam)
        if beam.has_ended or search is None:
            return
        if beam.is_waiting:  # it was preempted while these were in flight
            self._waiting.leave(beam)
        if not search.take_in(beam, candidates):
            return
        continuations = search.decide()
        if search.is_over:
            self._publish(search, forward_time, None)
        elif search.length > self._cache.capacity:
            message = self._cache.outgrown(search.length)
            self._publish(search, forward_time, SequenceEnded(beam.id, "error", error_code=429, error_msg=message))
        else:
            self._follow(search, continuations)

    def _follow(self, search: BeamSearch, continuations: list[Continuation]) -> None:
        """Continue sequences: a parent's first continuation takes over its sequence; further ones become new beams."""
        parents = {continuation.parent for continuation in continuations}
        for beam in search.beams:
            if beam not in parents:
                self._leave(beam)
        unused = iter(sorted(set(range(search.params.beam_width)) - {parent.sample for parent in parents}))
        following: dict[Sequence, float] = {}
        for parent, _, total in continuations:
            beam = parent
            if parent in following:
                beam = _copy(search, parent, next(unused))
                self._sequences[beam.id] = beam
                self.members.add(beam)
                self._unborn[beam] = parent
            following[beam] = total
        for beam, continuation in zip(following, continuations, strict=True):
            beam.output.append(continuation.token)
            beam.num_known += 1
            if beam.is_running:
                self._continued.append(beam)
            elif beam not in self._unborn:
                self._waiting.push(beam)
        search.beams = following

    # --- planning ---------------------------------------------------------------------------------------------------

    def before_decodes(self, step: ScheduledStep) -> None:
        """Add forks and decided tokens to the step."""
        for beam, parent in self._unborn.items():
            if beam.has_ended:
                continue
            if parent.is_running and self._running.has_free_slot and self._cache.can_fork():
                forked = self._cache.fork(parent, beam)
                self._running.join(beam)
                step.fork(parent, beam, forked)
                self._continued.append(beam)
            else:
                self._waiting.push(beam)
        for beam in self._continued:
            if beam.is_running:  # otherwise it was preempted; its history is sent when it is admitted again
                step.decide(beam)
        self._unborn, self._continued = {}, []

    # --- ends -------------------------------------------------------------------------------------------------------

    def end(self, beam: Sequence, ended: SequenceEnded) -> None:
        """End the whole search after an abort or a failed beam; the samples keep their output so far."""
        if (search := self._search_of(beam)) is not None:
            self._publish(search, 0.0, ended)

    def _publish(self, search: BeamSearch, forward_time: float, ended: SequenceEnded | None) -> None:
        """Publish and end all samples at once; `forward_time` is that of the step with the last results."""
        del self._searches[search.request.prompt.request_id]
        best = search.best()
        beam = next(iter(search.beams))
        silent_time = max(each.silent_time for each in search.beams) - forward_time
        for each in search.beams:
            self._leave(each)
        for number in range(search.params.beam_width):
            hypothesis = best[number] if number < len(best) else Hypothesis(array("i"), None, "length", None)
            sample = Sequence(search.request, number, 0, False)
            sample.start_time, sample.silent_time = beam.start_time, silent_time
            sample.untold_preemptions = 0 if number else search.preemptions
            if hypothesis.output:
                self._publisher.add_tokens(sample, hypothesis.output)
            self._counters.generated_tokens += len(hypothesis.output)
            own = ended or SequenceEnded(0, hypothesis.finish_reason, hypothesis.stop_reason)
            self._publisher.end(sample, msgspec.structs.replace(own, sequence_id=sample.id, score=hypothesis.score))

    def _leave(self, beam: Sequence) -> None:
        beam.has_ended = True
        self.members.remove(beam)
        del self._sequences[beam.id]
        if beam.is_running:
            self._running.leave(beam, beam.num_findable_tokens)
        elif beam.is_waiting:
            self._waiting.leave(beam)


def _copy(search: BeamSearch, parent: Sequence, sample: int) -> Sequence:
    """A beam with the parent's history, but no slot and blocks yet."""
    beam = Sequence(parent.request, sample, 0, parent.is_long)
    beam.decoding = parent.decoding
    # Orders it after the request's first beam and before any later request; unique, though sample numbers recur.
    search.num_born += 1
    beam.order = (*search.order, search.num_born)
    beam.output = array("i", parent.output)
    beam.num_known = parent.num_known
    beam.output_keys, beam.stretch = list(parent.output_keys), parent.stretch
    beam.start_time, beam.silent_time = parent.start_time, parent.silent_time
    return beam
