"""One beam search: chooses how beams continue, which hypotheses are finished, and when the search is over.

The search is the one of transformers' `generate(num_beams=…)`, step for step. Each beam is a sequence whose row samples
nothing but returns candidates for its next token; when all beams have returned theirs, the search weighs them together.
"""

from array import array
from heapq import nlargest
from math import inf
from typing import NamedTuple

from ...protocol.messages import Candidates, FinishReason, Score
from ...protocol.parameters.beams import BeamSearchParams
from ...protocol.wire import float_values, values
from ..request import Request, Sequence


class Continuation(NamedTuple):
    """A beam of the next step: a beam of this step and the token appended to it."""

    parent: Sequence
    token: int
    total: float


class Hypothesis(NamedTuple):
    """A finished output."""

    output: "array[int]"
    score: Score | None
    finish_reason: FinishReason
    stop_reason: int | None

    @property
    def value(self) -> float:
        """The score that orders hypotheses; one without a score comes last."""
        return -inf if self.score is None else self.score.score


class BeamSearch:
    def __init__(self, request: Request, params: BeamSearchParams) -> None:
        self.request = request
        self.params = params
        self.num_candidates = params.num_candidates(len(request.endings))
        self.beams: dict[Sequence, float] = {}  # with their summed log-probabilities, best first
        self.hypotheses: list[Hypothesis] = []  # the best so far, best first
        self.length = request.num_prompt  # tokens of every beam, including the prompt's
        self.is_over = False
        self.preemptions = 0
        self.order: tuple[int, ...] = ()  # the first beam's position in the queue
        self.num_born = 0  # beams that were forked
        self._reported: dict[Sequence, Candidates] = {}

    def has_reported(self, beam: Sequence) -> bool:
        """Whether this beam's candidates are here while others' are not: it needs no slot or blocks now."""
        return beam in self._reported

    def take_in(self, beam: Sequence, candidates: Candidates) -> bool:
        """Take in the candidates of a beam; True once those of all beams are here."""
        self._reported[beam] = candidates
        return len(self._reported) == len(self.beams)

    def decide(self) -> list[Continuation]:
        """Weigh all candidates. Returns the beams of the next step, best first; none if the search is over."""
        width, num_prompt = self.params.beam_width, self.request.num_prompt
        self.length += 1
        length = self.length - num_prompt
        is_last = self.length >= self.request.max_total
        following: list[Continuation] = []
        for rank, found in enumerate(nlargest(self.num_candidates, self._candidates(), key=lambda each: each.total)):
            if not is_last and found.token not in self.request.endings:
                following.append(found)
            elif rank < width:  # candidates beyond the width may become beams, but not hypotheses
                self._finish(found, length)
        self._reported = {}
        del following[width:]
        self.is_over = not following or not self._may_improve(following[0].total, length)
        return [] if self.is_over else following

    def best(self) -> list[Hypothesis]:
        """As many hypotheses as the search is wide: the finished ones, filled up with unfinished beams."""
        unfinished = [
            Hypothesis(beam.output, self._score(total, max(1, len(beam.output))), "length", None)
            for beam, total in self.beams.items()
        ]
        return (self.hypotheses + unfinished)[: self.params.beam_width]

    def _candidates(self) -> list[Continuation]:
        return [
            Continuation(beam, token, total + logprob)
            for beam, total in self.beams.items()
            for token, logprob in zip(
                values(self._reported[beam].token_ids), float_values(self._reported[beam].logprobs), strict=True
            )
        ]

    def _finish(self, found: Continuation, length: int) -> None:
        endings = self.request.endings
        reason: FinishReason = "stop" if found.token in endings else "length"
        output = found.parent.output + array("i", (found.token,))
        self.hypotheses.append(Hypothesis(output, self._score(found.total, length), reason, endings.get(found.token)))
        self.hypotheses.sort(key=lambda hypothesis: -hypothesis.value)
        del self.hypotheses[self.params.beam_width :]

    def _score(self, total: float, length: int) -> Score:
        return Score(total, total / self.params.scale / length**self.params.length_penalty)

    def _may_improve(self, best_total: float, length: int) -> bool:
        """Whether continuing the beams, of which the best has this log-probability, could beat a hypothesis."""
        if len(self.hypotheses) < self.params.beam_width:
            return True
        if self.params.early_stopping is True:
            return False
        if self.params.early_stopping == "never" and self.params.length_penalty > 0:
            # The sum only falls with each token, so the longest output bounds the score from above.
            length = self.request.max_total - self.request.num_prompt
        return self._score(best_total, length).score > self.hypotheses[-1].value
