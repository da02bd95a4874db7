"""The sequences that are guided, as the scheduler sees them: held until their grammar is there, given in a step what is
certain, masked where a token is sampled.

A guided row is planned ahead like any other. Its mask needs the tokens of the steps before: so the mask of a step goes
to the workers when it has become the oldest in flight, and they, who wait for it only before they sample, compute
meanwhile. Certain tokens that no step in flight brings go down as forced ones, as far as the sequence's blocks and
the step's budget reach; the next mask then allows but one. Knows nothing of how grammars are compiled.
"""

from array import array
from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from ...protocol.guided import Grammar
from ...protocol.messages import MaskFrame, column, mask_bytes
from ...protocol.sampling import SamplingParams
from ..request import Request, Sequence
from ..step import Step
from .guide import Guide, Matching
from .thoughts import ThoughtState

# Where a request wants one of these, its certain tokens are sampled one by one, each under a mask that allows no other:
# they tell something of every token that is sampled, or may forbid it.
_SAMPLES_EACH = ("bad_words_ids", "no_repeat_ngram_size", "early_stop")


class Compiling(Protocol):
    """What the guides ask of `compiler.py`."""

    def find(self, grammar: Grammar) -> Matching | str | None: ...

    def collect(self) -> list[tuple[Grammar, Matching | str]]: ...


class _NoGrammars:
    def find(self, grammar: Grammar) -> str:
        return "This engine compiles no grammars."

    def collect(self) -> list[tuple[Grammar, Matching | str]]:
        return []


class Guides:
    def __init__(self, compiler: Compiling, vocab_size: int, *, may_force: bool = True) -> None:
        self._compiler = compiler
        self._vocab_size = vocab_size
        self._may_force = may_force  # no step of a user's own has a say in which token is sampled
        self._held: dict[Grammar, list[Sequence]] = {}

    @classmethod
    def none(cls) -> "Guides":
        """Where no request brings a grammar or a limit."""
        return cls(_NoGrammars(), 0)

    # --- before the first step --------------------------------------------------------------------------------------

    def begin(self, sequence: Sequence) -> str | None:
        """Give it its guide, or hold it until its grammar is there; a sentence if that is known to be no grammar."""
        prompt = sequence.request.prompt
        grammar = prompt.grammar
        if grammar is None and prompt.params.reasoning_max_tokens is None:
            return None
        outcome = self._compiler.find(grammar) if grammar is not None else None
        if isinstance(outcome, str):
            return outcome
        if grammar is not None and outcome is None:
            self._held.setdefault(grammar, []).append(sequence)
            sequence.is_held = True
        else:
            sequence.guide = self._guide(sequence.request, outcome)
        return None

    def ready(self) -> Iterable[tuple[Sequence, str | None]]:
        """Sequences that are held no longer, with the sentence that ends those whose grammar is none."""
        for grammar, outcome in self._compiler.collect():
            for sequence in self._held.pop(grammar, []):
                sequence.is_held = False
                if sequence.has_ended:
                    continue
                if isinstance(outcome, str):
                    yield sequence, outcome
                else:
                    sequence.guide = self._guide(sequence.request, outcome)
                    yield sequence, None

    @property
    def num_held(self) -> int:
        return sum(not sequence.has_ended for held in self._held.values() for sequence in held)

    def _guide(self, request: Request, matcher: Matching | None) -> Guide | None:
        params = request.prompt.params
        thought = ThoughtState(request.prompt.thought, params.reasoning_max_tokens)
        own = matcher.fork() if matcher is not None else None
        guide = Guide(
            own, thought, list(request.endings), self._vocab_size, may_force=self._may_force and _may_force(params)
        )
        return None if guide.is_over else guide

    # --- a step -----------------------------------------------------------------------------------------------------

    def force(self, step: Step, budget: int) -> None:
        """Give the step's rows, each of which computes one token, those behind it that are certain."""
        for row, sequence in enumerate(step.rows):
            if sequence.guide is None or not sequence.guide.may_force or not budget:
                continue
            start = sequence.num_computed - sequence.num_known  # those before it, steps in flight bring
            room = min(budget, sequence.horizon - sequence.num_computed)
            tokens = array("i", islice(sequence.guide.certain, start, min(start + room, _num_forcible(sequence))))
            if tokens:
                step.force(row, tokens)
                sequence.num_computed += len(tokens)
                budget -= len(tokens)

    def mark(self, step: Step) -> None:
        """Note the rows that sample and may not sample just anything."""
        for row, sequence in enumerate(step.rows):
            if sequence.guide is None or sequence.num_left > 0:
                continue
            num_ahead = sequence.num_computed - sequence.num_known
            if sequence.guide.binds(num_ahead):
                step.masked.append(row)

    def frame(self, step: Step) -> MaskFrame:
        """The masks of a step, now that all tokens before it have come."""
        bits = bytearray()
        for row in step.masked:
            sequence = step.rows[row]
            mask = None
            # Of one that has ended any token will do: it is surplus.
            if sequence.guide is not None and not sequence.has_ended:
                mask = sequence.guide.mask(len(step.forced.get(sequence, ())))
            bits += self._anything if mask is None else mask
        return MaskFrame(step.number, column(step.masked), bytes(bits))

    @property
    def _anything(self) -> bytes:
        return b"\xff" * mask_bytes(self._vocab_size)

    # --- results ----------------------------------------------------------------------------------------------------

    def follow(self, sequence: Sequence, tokens: Iterable[int]) -> None:
        """Its next tokens have come."""
        for token in tokens:
            sequence.guide.take(token)
        if sequence.guide.is_over:
            sequence.guide = None


def _num_forcible(sequence: Sequence) -> int:
    """How many of its certain tokens may be given. A row samples behind them: so one that ends the answer is left for
    it to sample, and so is the last where nothing may follow, not even an ending."""
    guide = sequence.guide
    num_certain = len(guide.certain)
    may_end = sequence.endings and sequence.num_known + num_certain >= sequence.request.min_total
    most = num_certain - (guide.completes and not may_end)
    return next((place for place, token in enumerate(guide.certain) if token in sequence.endings), most)


def _may_force(params: SamplingParams) -> bool:
    return params.logprobs is None and not any(getattr(params, name) for name in _SAMPLES_EACH)
