"""Sequences whose grammars are too dear for the engine's loop: told the same as in the loop, and holding nobody up."""

import signal
import threading
from array import array
from functools import partial

import msgspec
import pytest
from builders.bundled_model import FOLDER, VOCABULARY
from builders.cases import for_each
from builders.engine_harness import prompt
from builders.guided_harness import OPEN_THOUGHT, GuidedHarness, grammar

from penstock.engine.grammar import constraint as constraint_module
from penstock.engine.grammar.calls import Guide
from penstock.engine.grammar.compiler import Compiler
from penstock.engine.grammar.constraint import TOO_EXPENSIVE, Constraint, LoopBudget
from penstock.engine.grammar.matcher import MOST, Matcher, Vocabulary
from penstock.engine.grammar.pool import STACK_BYTES
from penstock.engine.grammar.remote import RemoteFollower
from penstock.engine.grammar.thoughts import ThoughtState
from penstock.protocol.parameters.guided import Grammar
from penstock.protocol.processes.process import wait_for_ends

AMBIGUOUS = 'start: e\ne: e "+" e | e e | "(" e ")" | /[a-z0-9 ]/ | "sure: " e\n'
# Sixty ways to go on from each letter: its first mask alone takes longer than the loop would wait.
DEAR = "start: s\ns: " + " | ".join(f"x{i} s" for i in range(60)) + ' | "."\n'
DEAR += "".join(f"x{i}: /[a-z]/ x{(i + 1) % 60} | /[a-z]/ x{(i + 7) % 60} | /[a-z]/\n" for i in range(60))


class Waiting:
    def __init__(self) -> None:
        self.woken = threading.Event()
        self.follower = RemoteFollower(FOLDER, VOCABULARY, self.woken.set)

    def begun(self, text: str, tokens=(), *, kind="lark", **given):
        asked = msgspec.structs.replace(prompt(0, [1]), grammar=Grammar(kind, text), **given)
        guide = Guide(asked.grammar, asked.thought, asked.params.reasoning_max_tokens, [2])
        constraint = self.follower.constraint(guide, asked.client, array("i", tokens), may_force=True)
        return self.heard(constraint)

    def took(self, constraint, token):
        constraint.history.append(token)
        constraint.take(token)
        return self.heard(constraint) if constraint.is_awaited else constraint

    def heard(self, constraint):
        self.follower.follow(constraint)
        while constraint.is_awaited:
            assert self.woken.wait(60), "nobody said what may follow"
            self.woken.clear()
            self.follower.collect()
        return constraint


@pytest.fixture(scope="module")
def waiting():
    return Waiting()


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(FOLDER, VOCABULARY)


def allowed(mask):
    return [token for token in range(VOCABULARY) if mask[token >> 3] >> (token & 7) & 1]


def here(vocabulary, text, thought=None, limit=None):
    matcher = Matcher.compiled(Grammar("lark", text), vocabulary, MOST)
    return Constraint(matcher, ThoughtState(thought, limit), [2], VOCABULARY, may_force=True)


@for_each("thought, limit", [(None, None), (OPEN_THOUGHT, 3)])
def test_a_sequence_is_told_what_a_constraint_in_the_loop_would_say(waiting, vocabulary, thought, limit):
    params = msgspec.structs.replace(prompt(0, [1]).params, reasoning_max_tokens=limit)
    remote = waiting.begun(AMBIGUOUS, thought=thought, params=params)
    constraint = here(vocabulary, AMBIGUOUS, thought, limit)
    for step in range(25):
        masks = [constraint.mask(num_given) for num_given in range(len(constraint.certain) + 1)]
        assert (list(remote.certain), remote.is_complete, remote.error) == (
            list(constraint.certain), constraint.is_complete, constraint.error
        )  # fmt: skip
        if constraint.error is not None:
            break
        assert [remote.mask(num_given) for num_given in range(len(masks))] == masks
        choices = [token for token in allowed(masks[0]) if token != 2]
        token = choices[step * 7 % len(choices)]
        constraint.take(token)
        waiting.took(remote, token)
    assert step > 5


def ends_in_its_job(helper, number):
    answer = helper._ask

    def dying(job_for):
        def sent_before_it(generation):  # once the process is chosen: an end before that would not be this job's
            helper._process.send(number)
            return job_for(generation)

        helper._ask = answer
        return answer(sent_before_it)

    helper._ask = dying


def ends_between_jobs(helper):
    helper._process.send(signal.SIGKILL)
    assert wait_for_ends([helper._process], 10)


def leaves_the_next_job_to_another(helper):
    helper._release()


@for_each("end", [partial(ends_in_its_job, number=signal.SIGKILL), ends_between_jobs, leaves_the_next_job_to_another])
def test_sequences_are_followed_on_when_their_process_is_another(waiting, vocabulary, end):
    constraints = [waiting.begun(AMBIGUOUS) for _ in range(3)]
    token = allowed(constraints[0].mask(0))[0]
    waiting.took(constraints[2], token)
    end(waiting.follower._process)
    told = here(vocabulary, AMBIGUOUS)
    told.take(token)
    for constraint in constraints[:2]:
        assert (waiting.took(constraint, token).mask(0), constraint.error) == (told.mask(0), None)
    told.take(token)
    assert (waiting.took(constraints[2], token).mask(0), constraints[2].error) == (told.mask(0), None)


def test_a_sequence_that_breaks_the_process_ends_and_the_others_are_followed_anew(waiting, vocabulary):
    first, second = waiting.begun(AMBIGUOUS), waiting.begun(AMBIGUOUS)
    token = allowed(first.mask(0))[0]
    waiting.took(second, token)
    ends_in_its_job(waiting.follower._process, signal.SIGABRT)
    assert "Use a simpler one" in waiting.took(first, token).error
    constraint = here(vocabulary, AMBIGUOUS)
    for each in (token, token):
        constraint.take(each)
    assert waiting.took(second, token).mask(0) == constraint.mask(0)


def test_the_stack_of_its_thread_is_no_growth_of_a_process():
    waiting = Waiting()
    helper = waiting.follower._process
    helper.bounds = helper.bounds._replace(memory_bytes=STACK_BYTES)
    waiting.begun(AMBIGUOUS)
    waiting.begun('start: "another"')
    assert helper.generation == 1
    helper.close()


def test_a_sequence_that_has_ended_is_forgotten_and_one_without_a_grammar_ends_with_the_librarys_words(waiting):
    gone, other = waiting.begun(AMBIGUOUS), waiting.begun(AMBIGUOUS)
    gone.is_gone = True
    waiting.took(other, allowed(other.mask(0))[0])
    assert gone not in waiting.follower._numbers and other in waiting.follower._numbers
    assert "nobody" in waiting.begun("start: nobody").error


def test_a_grammar_that_is_dear_from_its_beginning_is_known_when_it_is_compiled():
    woken = threading.Event()
    compiler = Compiler(FOLDER, VOCABULARY, woken.set)
    assert compiler.find(Grammar("lark", DEAR)) is None
    assert woken.wait(60)
    assert [outcome for _, outcome in compiler.collect()] == [TOO_EXPENSIVE]


def test_sequences_that_are_followed_apart_are_not_waited_for():
    harness = GuidedHarness(one_dear_in=1)
    harness.follower.collect = list  # nothing is ever heard
    for number in range(4):
        script = grammar([list(range(50))] * 20)
        harness.add(msgspec.structs.replace(prompt(number, [1, 2], max_tokens=20), grammar=script))
    harness.add(prompt(9, [3], max_tokens=40))
    while harness.ended(9) is None:
        harness.step()
    assert len(harness.tokens(9)) == 40 and harness.follower.num_asked == 4
    assert all(harness.ended(number) is None for number in range(4))


# --- the loop's share ------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(constraint_module.time, "thread_time", lambda: self.now)

    def takes(self, seconds):
        def work():
            self.now += seconds

        return work


class Timed:
    seconds = 0.0


def step(loop_budget, clock, constraints, hidden_seconds=0.001):
    """Those that went on, and how long all took; each takes what it says."""
    loop_budget.begin_step(hidden_seconds)
    start, left = clock.now, []
    for constraint, seconds in constraints:
        if loop_budget.allows(constraint):
            loop_budget.timed(constraint, clock.takes(seconds))
            left.append((constraint, seconds))
    return left, clock.now - start


@for_each("seconds", [0.0004, 0.001, 0.004])
def test_dear_masks_have_a_share_of_a_step_however_many_there_are(monkeypatch, seconds):
    clock, loop_budget = Clock(monkeypatch), LoopBudget()
    constraints, first = step(loop_budget, clock, [(Timed(), seconds) for _ in range(100)])  # nobody knows them yet
    constraints, second = step(loop_budget, clock, constraints)
    assert constraints and first <= 4 * 0.008 + seconds and second <= 0.008 + seconds


def test_cheap_masks_go_on_beside_dear_ones_and_all_may_take_half_the_time_of_what_they_hide_behind(monkeypatch):
    clock, loop_budget = Clock(monkeypatch), LoopBudget()
    cheap = [(Timed(), 0.0001) for _ in range(24)]
    step(loop_budget, clock, [(Timed(), 0.004), (Timed(), 0.004), *cheap])
    assert len(step(loop_budget, clock, [(Timed(), 0.01), *cheap])[0]) == 25
    known = [(Timed(), 0.001) for _ in range(60)]
    for constraint, seconds in known:
        constraint.seconds = seconds
    assert step(LoopBudget(), clock, known, hidden_seconds=0.1)[1] == pytest.approx(0.05)
