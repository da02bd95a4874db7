"""Drives a scheduler whose requests may bring grammars and thoughts, and says what each would get alone.

A grammar is a script here: for each place of the answer the tokens that may stand there. `allowed` says from the tokens
so far alone what may follow, with nothing of the code under test.
"""

import json
import random
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Self

from builders.engine_harness import VOCABULARY, Harness

from penstock.engine.grammar.calls import Guide
from penstock.engine.grammar.constraint import Constraint, LoopBudget
from penstock.engine.grammar.constraints import Constraints
from penstock.engine.grammar.remote import RemoteConstraint, Report, SequenceStart
from penstock.engine.loop import STEPS_IN_FLIGHT
from penstock.engine.scheduler import Scheduler
from penstock.protocol.messages import MaskFrame, Prompt, StepPlan
from penstock.protocol.parameters.guided import CallGuide, Grammar, Thought
from penstock.protocol.wire import values

Script = Sequence[Sequence[int]]

OPENING, CLOSING, BREAK = 300, 301, 302
THOUGHT = Thought(is_open=False, openings=[[OPENING]], closings=[[CLOSING]], forced=[BREAK, CLOSING, BREAK])
OPEN_THOUGHT = Thought(is_open=True, openings=[], closings=[[CLOSING]], forced=[BREAK, CLOSING, BREAK])


def grammar(script: Script) -> Grammar:
    return Grammar("lark", json.dumps(script))


class ScriptMatcher:
    """What `Matcher` is to a real grammar. The mask at the place `hard` is too much for it, if there is one."""

    def __init__(self, script: Script, place: int = 0, hard: int | None = None) -> None:
        self.script = script
        self.place = place
        self.hard = hard
        self.error: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.place == len(self.script)

    is_accepting = is_complete

    def fork(self) -> "ScriptMatcher":
        return ScriptMatcher(self.script, self.place, self.hard)

    def take(self, tokens: list[int]) -> bool:
        for token in tokens:
            if self.is_complete or token not in self.script[self.place]:
                self.error = f"{token} stands at {self.place}"
                return False
            self.place += 1
        return True

    def certain(self) -> list[int]:
        place = self.place
        while place < len(self.script) and len(self.script[place]) == 1:
            place += 1
        return [allowed for [allowed] in self.script[self.place : place]]

    def mask(self, endings: list[int]) -> bytearray:
        bits = bytearray(VOCABULARY // 8)
        if self.place == self.hard:
            self.error = f"the mask at {self.place} takes too long"
            return bits
        for token in endings if self.is_complete else self.script[self.place]:
            bits[token >> 3] |= 1 << (token & 7)
        return bits


class ScriptCompiler:
    """Has scripts ready at once or, if it is slow, when they are collected; a script that is empty is none.

    With a seed it has one at a time, in an order that nobody knows. `hard` is of its matchers.
    """

    def __init__(self, *, is_slow: bool = False, seed: int | None = None, hard: int | None = None) -> None:
        self.is_slow = is_slow
        self._hard = hard
        self._random = None if seed is None else random.Random(seed)
        self._asked: list[Grammar] = []
        self._done: dict[Grammar, ScriptMatcher | str] = {}

    @property
    def is_awaited(self) -> bool:
        return bool(self._asked)

    def find(self, asked: Grammar, client: str) -> ScriptMatcher | str | None:
        if not self.is_slow:
            return _compiled(asked, self._hard)
        if asked not in self._done and asked not in self._asked:
            self._asked.append(asked)
        return self._done.get(asked)

    def leave(self, asked: Grammar, client: str) -> None:
        """It is compiled all the same."""

    def collect(self) -> list[tuple[Grammar, ScriptMatcher | str]]:
        if self._random is not None:
            self._random.shuffle(self._asked)
        num_done = len(self._asked) if self._random is None else 1
        found = [(asked, _compiled(asked, self._hard)) for asked in self._asked[:num_done]]
        self._done.update(found)
        self._asked = self._asked[num_done:]
        return found


def _compiled(asked: Grammar, hard: int | None = None) -> ScriptMatcher | str:
    script = json.loads(asked.text)
    return ScriptMatcher(script, hard=hard) if script else "An empty script."


class ScriptFollower:
    """Follows scripts as the process of `remote.py` does; what it says is heard at the next `collect`."""

    def __init__(self) -> None:
        self._asked: list[tuple[RemoteConstraint, list[int]]] = []
        self.num_asked = 0

    @property
    def is_awaited(self) -> bool:
        return bool(self._asked)

    def constraint(self, guide: Guide, client: str, history: array, *, may_force: bool) -> RemoteConstraint:
        return RemoteConstraint(SequenceStart("", VOCABULARY, guide), history, may_force=may_force)

    def follow(self, constraint: RemoteConstraint) -> None:
        constraint.unsent = []
        self._asked.append((constraint, constraint.guided_tokens))
        self.num_asked += 1

    def collect(self) -> list[RemoteConstraint]:
        asked, self._asked = self._asked, []
        for constraint, tokens in asked:
            constraint.take_in(self._report(constraint.start, tokens))
        return [constraint for constraint, _ in asked]

    def _report(self, start: SequenceStart, tokens: list[int]) -> Report:
        matcher = _compiled(start.guide.grammar)
        constraint = start.guide.constraint(matcher.fork(), VOCABULARY, may_force=True)
        for token in tokens:
            constraint.take(token)
        mask = constraint.mask(len(constraint.certain))
        mask = None if mask is None else bytes(mask)
        return Report(list(constraint.certain), mask, constraint.completes, constraint.error, constraint.is_over)


class RandomLoopBudget(LoopBudget):
    """Finds one constraint in so many too dear, whatever it does."""

    def __init__(self, one_in: int, seed: int = 0) -> None:
        super().__init__()
        self._one_in = one_in
        self._random = random.Random(seed)

    def allows(self, constraint: Constraint) -> bool:
        return not self._one_in or self._random.randrange(self._one_in) > 0


class GuidedHarness(Harness):
    """A step is computed when its mask has come, as a worker would. One row in `one_dear_in` goes to the
    follower (0: none)."""

    def __init__(
        self,
        *,
        compiler: ScriptCompiler | None = None,
        may_force: bool = True,
        one_dear_in: int = 0,
        seed: int = 0,
        **options,
    ) -> None:
        super().__init__(**options)
        self.compiler = compiler or ScriptCompiler()
        self.follower = ScriptFollower()
        budget = RandomLoopBudget(one_dear_in, seed)
        constraints = Constraints(self.compiler, self.follower, VOCABULARY, may_force=may_force, loop_budget=budget)
        self.scheduler = Scheduler(self.limits, constraints=constraints)
        self.frames: dict[int, MaskFrame] = {}
        self._uncomputed: deque[StepPlan] = deque()
        self._random = random.Random(seed)

    def finish(self) -> None:
        super().finish()
        if self._random.randrange(2):  # the follower's reports may come at any time
            self.scheduler.arrivals.let_in_reported()
            self._hear_ends()
        self._compute_what_has_masks()

    def _compute(self, plan: StepPlan, masks: object = None) -> None:
        self._uncomputed.append(plan)
        self._compute_what_has_masks()

    def _compute_what_has_masks(self) -> None:
        self._draft()
        if (frame := self.scheduler.take_mask()) is not None:
            self.frames[frame.step] = frame
        self._hear_ends()
        while self._uncomputed and (not self._uncomputed[0].masked or self._uncomputed[0].step in self.frames):
            super()._compute(self._uncomputed.popleft(), self.frames.__getitem__)
            self._draft()

    def _draft(self) -> None:
        """What comes next begins, and rank 0 sends the drafts of its masked rows."""
        begins = self._uncomputed[0] if self._uncomputed else None
        if begins is None or begins.step in self.frames:
            return
        if begins.rooms and (drafts := self.worker.draft(begins)) is not None:
            self.scheduler.take_drafts(drafts)

    def run(self, steps_in_flight: int = STEPS_IN_FLIGHT) -> Self:
        while True:
            while len(self.scheduler.in_flight) < steps_in_flight and self.plan() is not None:
                pass
            if not self.scheduler.in_flight:
                self.scheduler.arrivals.let_in_held()
                self._hear_ends()
                if not self.scheduler.sequences:
                    return self
                is_awaited = self.compiler.is_awaited or self.follower.is_awaited
                is_left = self.scheduler.waiting or self.scheduler.running.decoding
                assert is_left or is_awaited, "sequences are left, and nothing is planned for them"
                continue
            self.finish()


# --- what a request must get -----------------------------------------------------------------------------------------


def allowed(out: list[int], asked: Prompt) -> set[int] | None:
    """The tokens that may follow these in an answer; None: any."""
    script = json.loads(asked.grammar.text) if asked.grammar is not None else None
    endings = asked.params.ending_ids
    anything = None if script is None else set(range(VOCABULARY)) - endings
    if asked.calls:
        in_call = _in_call(out, asked)
        if in_call is not None:
            return in_call
    if _has_call(out, asked.thought, asked.params.reasoning_max_tokens):
        return None
    start = _thought_end(out, asked.thought, asked.params.reasoning_max_tokens, script is not None)
    if isinstance(start, list):
        return set(start)
    if start is None:
        return anything
    if script is None:
        return None
    place = len(out) - start
    following = set(script[place]) if place < len(script) else endings
    may_think = not out and asked.thought is not None and bool(asked.thought.openings)
    return following | {OPENING} if may_think else following


def _in_call(out: list[int], asked: Prompt) -> set[int] | None:
    """The tokens that may follow in the call that is open; None: there is none, or nothing is known of it."""
    limit, before = asked.params.reasoning_max_tokens, values(asked.token_ids).tolist()
    if _has_call(out, asked.thought, limit):
        free = next(place for place in range(len(out)) if _has_call(out[: place + 1], asked.thought, limit))
    elif isinstance(start := _thought_end(out, asked.thought, limit, False), int):
        free = start
    else:
        return None
    is_open = asked.thought is not None and asked.thought.is_open
    call = _begun(before, asked) if limit is None and not is_open else None
    if call is not None:
        free = 0
    begun = 0
    for place in range(len(out)):
        if call is None:
            if place >= free and (call := _begun(before + out[: place + 1], asked)) is not None:
                begun = place + 1
            continue
        script = json.loads(call.grammar.text)
        if not script:
            return None
        length = len(script) + bool(call.closings)
        if place + 1 - begun == length:
            call = None
    if call is None or not (script := json.loads(call.grammar.text)):
        return None
    place = len(out) - begun
    return set(script[place]) if place < len(script) else set(call.closings)


def _begun(tokens: list[int], asked: Prompt) -> CallGuide | None:
    marks = ((mark, call) for call in asked.calls for mark in call.openings if mark[-1] == tokens[-1])
    return next((call for mark, call in marks if tokens[-len(mark) :] == mark), None)


def _has_call(out: list[int], thought: Thought | None, limit: int | None) -> bool:
    """Whether a call begins in the place of a thought's rest."""
    if thought is None or not (thought.is_open or (thought.openings and out[:1] == [OPENING])):
        return False
    own = out[0 if thought.is_open else 1 :][:limit]
    own = own[: own.index(CLOSING)] if CLOSING in own else own
    return any([token] in thought.calls for token in own)


def _thought_end(out: list[int], thought: Thought | None, limit: int | None, is_shaped: bool) -> int | list[int] | None:
    """Where the answer behind a thought begins; None: within the thought; a list: what must follow."""
    begins = 0 if thought is not None and thought.is_open else 1
    if thought is None or not (thought.is_open or (thought.openings and out[:1] == [OPENING])):
        return 0
    body = out[begins:]
    forced = thought.forced
    own = body if limit is None else body[:limit]
    if CLOSING in own:
        end = own.index(CLOSING) + 1
        behind = forced[forced.index(CLOSING) + 1 :] if is_shaped else []
        given = len(body) - end
        return behind[given : given + 1] if given < len(behind) else begins + end + len(behind)
    if limit is None or len(body) < limit:
        return None
    given = len(body) - limit
    return forced[given : given + 1] if given < len(forced) else begins + limit + len(forced)
