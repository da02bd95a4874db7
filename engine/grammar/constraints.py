"""Constraints of sequences with grammars or thought limits: their compilation, their followers and their masks.

The engine's loop computes a constraint while it has time for it, then the follower's process does.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from ...protocol.messages import MaskFrame
from ...protocol.parameters.guided import Grammar
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.wire import column, mask_bytes
from ..request import Request, Sequence
from ..step import ScheduledStep
from .calls import Guide
from .constraint import Busy, Constraint, GrammarMatcher, LoopBudget, TooExpensive
from .remote import RemoteConstraint

# If a request has one of these, or an `early_stop` that counts likely tokens, its certain tokens are sampled one by
# one, each under a mask that allows no other: these parameters need every sampled token, or may forbid it.
_SAMPLES_EACH = ("bad_words_ids", "no_repeat_ngram_size")

Outcome = GrammarMatcher | TooExpensive | Busy | str


class GrammarCompiler(Protocol):
    """The part of `compiler.py` used here."""

    def find(self, grammar: Grammar, client: str) -> Outcome | None: ...

    def leave(self, grammar: Grammar, client: str) -> None: ...

    def collect(self) -> list[tuple[Grammar, Outcome]]: ...


class Follower(Protocol):
    """The part of `remote.py` used here."""

    def constraint(self, guide: Guide, client: str, history: "array[int]", *, may_force: bool) -> RemoteConstraint: ...

    def follow(self, constraint: RemoteConstraint) -> None: ...

    def collect(self) -> list[RemoteConstraint]: ...


class _NoGrammars:
    """The compiler and follower of an engine without grammars: it refuses all, so none has to be compiled or
    followed."""

    def find(self, grammar: Grammar, client: str) -> str:
        return "This engine compiles no grammars."

    def leave(self, grammar: Grammar, client: str) -> None: ...

    def constraint(self, guide: Guide, client: str, history: "array[int]", *, may_force: bool) -> RemoteConstraint:
        raise NotImplementedError("without grammars nobody needs to be followed")

    def follow(self, constraint: RemoteConstraint) -> None: ...

    def collect(self) -> list[Any]:
        return []


class Constraints:
    def __init__(
        self,
        compiler: GrammarCompiler,
        follower: Follower,
        vocab_size: int,
        *,
        may_force: bool = True,
        loop_budget: LoopBudget | None = None,
    ) -> None:
        self._compiler = compiler
        self._follower = follower
        self._vocab_size = vocab_size
        self._may_force = may_force  # False if users' logits processors take part
        self._loop_budget = loop_budget or LoopBudget()
        self._held: dict[Grammar, dict[str, dict[Sequence, None]]] = {}  # by client, until compiled
        self._followed: dict[RemoteConstraint, Sequence] = {}

    @classmethod
    def none(cls) -> "Constraints":
        """Constraints for an engine without grammars."""
        return cls(_NoGrammars(), _NoGrammars(), 0)

    # --- before the first step --------------------------------------------------------------------------------------

    def begin(self, sequence: Sequence) -> Busy | str | None:
        """Give the sequence its constraint, or hold it until its grammar is compiled. Returns a refusal, if any."""
        grammar, client = _grammar(sequence), sequence.request.prompt.client
        outcome = self._compiler.find(grammar, client) if grammar is not None else None
        if isinstance(outcome, (Busy, str)):
            return outcome
        if grammar is not None and outcome is None:
            self._held.setdefault(grammar, {}).setdefault(client, {})[sequence] = None
            sequence.is_held = True
        else:
            self._give_constraint(sequence, outcome)
        return None

    def ready(self) -> Iterable[tuple[Sequence, Busy | str | None]]:
        """Sequences whose grammar has been compiled, each with the refusal that ends it, if any."""
        for grammar, outcome in self._compiler.collect():
            for sequence in self._let_go(grammar, outcome):
                sequence.is_held = False
                if isinstance(outcome, (Busy, str)):
                    yield sequence, outcome
                else:
                    self._give_constraint(sequence, outcome)
                    yield sequence, None

    def _let_go(self, grammar: Grammar, outcome: Outcome) -> list[Sequence]:
        """Remove and return the sequences that an outcome concerns."""
        clients = self._held.pop(grammar, {})
        if not isinstance(outcome, Busy):
            return [sequence for held in clients.values() for sequence in held]
        held = clients.pop(outcome.client, {})
        if clients:
            self._held[grammar] = clients
        return list(held)

    @property
    def num_held(self) -> int:
        held = [sequence for clients in self._held.values() for held in clients.values() for sequence in held]
        return len(held) + sum(each.is_held for each in self._followed.values())

    def _give_constraint(self, sequence: Sequence, outcome: GrammarMatcher | TooExpensive | None) -> None:
        if isinstance(outcome, TooExpensive):
            self._move_to_follower(sequence)
            sequence.is_held = True
            return
        own, may_force = None if outcome is None else outcome.fork(), self._forces(sequence.request)
        constraint = _guide(sequence).constraint(own, self._vocab_size, may_force=may_force)
        sequence.constraint = None if constraint.is_over else constraint

    def _forces(self, request: Request) -> bool:
        return self._may_force and not request.prompt.claims and _may_force(request.prompt.params)

    # --- sequences that the follower's process follows --------------------------------------------------------------

    def reported(self) -> Iterable[Sequence]:
        """The sequences that the follower has reported on."""
        for constraint in self._follower.collect():
            if (sequence := self._followed.pop(constraint, None)) is not None and not sequence.has_ended:
                if constraint.is_over:
                    self.drop(sequence)
                yield sequence

    def _may_go_on(self, grammar: Grammar | None, constraint: Constraint) -> bool:
        """Whether the sequence may stay in the engine's loop. A thought's limit alone takes no time."""
        return grammar is None or self._loop_budget.allows(constraint)

    def _move_to_follower(self, sequence: Sequence) -> None:
        """Have the follower's process compute the constraint from here on."""
        request = sequence.request
        sequence.constraint = constraint = self._follower.constraint(
            _guide(sequence), request.prompt.client, sequence.output, may_force=self._forces(request)
        )
        self._follow_remotely(sequence, constraint)

    def _follow_remotely(self, sequence: Sequence, constraint: RemoteConstraint) -> None:
        self._followed[constraint] = sequence
        self._follower.follow(constraint)

    def drop(self, sequence: Sequence) -> None:
        """Forget the constraint of a sequence that has ended or is free from here on."""
        grammar, constraint = _grammar(sequence), sequence.constraint
        if constraint is None and grammar is not None and sequence.is_held:
            self._leave(sequence, grammar)
        elif isinstance(constraint, RemoteConstraint):
            constraint.is_gone = True
            self._followed.pop(constraint, None)
        sequence.constraint = None

    def _leave(self, sequence: Sequence, grammar: Grammar) -> None:
        """Stop waiting for a grammar; the compiler is told when no sequence of that client waits any more."""
        client = sequence.request.prompt.client
        clients = self._held.get(grammar, {})
        if sequence in (held := clients.get(client, {})):
            del held[sequence]
            if not held:
                del clients[client]
                self._compiler.leave(grammar, client)
            if not clients:
                del self._held[grammar]

    # --- a step -----------------------------------------------------------------------------------------------------

    def frame(self, step: ScheduledStep) -> MaskFrame:
        """The masks of a step, once all tokens before it are known."""
        rows: list[int] = []
        bits = bytearray()
        for row in step.masked:
            sequence, drafts = step.rows[row], step.drafts_of(row)
            count = 1 + len(drafts)
            masks: list[bytes | bytearray | None] = []
            # If it has ended or was dropped from the step, its token is surplus and may be any.
            constraint, is_surplus = sequence.constraint, sequence.has_ended or sequence in step.dropped
            if constraint is not None and not is_surplus:
                masks.append(self._mask(sequence, constraint, len(step.forced.get(sequence, ()))))
                if count > 1 and sequence.constraint is constraint and isinstance(constraint, Constraint):
                    ahead = constraint.fork()
                    masks += self._masks_along(sequence, ahead, drafts)
                    if ahead.error is not None:
                        step.num_masks[row] = len(masks)
            rows += [row] * count
            bits += b"".join(self._anything if mask is None else mask for mask in masks)
            bits += self._anything * (count - len(masks))
        return MaskFrame(step.number, column(rows), bytes(bits))

    def _masks_along(self, sequence: Sequence, ahead: Constraint, drafts: "array[int]") -> Iterator[bytearray | None]:
        """The masks after each of the drafts, up to one that ends the sequence, sets it free, or that the grammar
        fails at."""
        for num_known, token in enumerate(drafts, start=sequence.num_known + 1):
            self._loop_budget.timed(ahead, ahead.take, token)
            if ahead.is_over or ahead.error is not None or allows_nothing(sequence, ahead, num_known):
                return
            mask = self._loop_budget.timed(ahead, ahead.mask, 0)
            if ahead.error is not None:
                return
            yield mask

    def _mask(
        self, sequence: Sequence, constraint: Constraint | RemoteConstraint, num_given: int
    ) -> bytes | bytearray | None:
        if isinstance(constraint, RemoteConstraint):
            return constraint.mask(num_given)
        grammar = _grammar(sequence)
        mask = None
        if self._may_go_on(grammar, constraint):
            mask = self._loop_budget.timed(constraint, constraint.mask, num_given)
            if constraint.error is None:
                return mask
        if grammar is not None:
            self._move_to_follower(sequence)
            return None
        return mask

    @property
    def _anything(self) -> bytes:
        return b"\xff" * mask_bytes(self._vocab_size)

    # --- results ----------------------------------------------------------------------------------------------------

    def begin_step(self, forward_time: float) -> None:
        """Start counting the grammars' time again: a step's result is here."""
        self._loop_budget.begin_step(forward_time)

    def follow(self, sequence: Sequence, tokens: Iterable[int]) -> None:
        """Advance a sequence's constraint by its next tokens."""
        constraint, grammar = sequence.constraint, _grammar(sequence)
        if isinstance(constraint, RemoteConstraint):
            _take(constraint, tokens)
            if constraint.is_awaited:
                self._follow_remotely(sequence, constraint)
        elif constraint is not None:
            if self._may_go_on(grammar, constraint):
                self._loop_budget.timed(constraint, _take, constraint, tokens)
                if constraint.is_over:
                    sequence.constraint = None
                if constraint.error is None:
                    return
            if grammar is not None:
                self._move_to_follower(sequence)


def allows_nothing(sequence: Sequence, constraint: Constraint | RemoteConstraint, num_known: int) -> bool:
    """Whether only an end token may follow so many known ones, and none can be sampled: the answer ends without."""
    return constraint.is_complete and (not sequence.endings or num_known < sequence.request.min_total)


def _guide(sequence: Sequence) -> Guide:
    if sequence.guide is None:
        raise RuntimeError(f"Sequence {sequence.id} is free and can't be held to a grammar.")
    return sequence.guide


def _grammar(sequence: Sequence) -> Grammar | None:
    return None if sequence.guide is None else sequence.guide.grammar


def _take(constraint: Constraint | RemoteConstraint, tokens: Iterable[int]) -> None:
    for token in tokens:
        constraint.take(token)


def _may_force(params: SamplingParams) -> bool:
    is_watched = params.early_stop is not None and params.early_stop.least_logprob is not None
    return params.logprobs is None and not is_watched and not any(getattr(params, name) for name in _SAMPLES_EACH)
