"""Grammars compiled beside the loop: each once, in bounds, and a hostile one ends alone.

Clients take turns at it; what nobody waits for is not compiled, and nobody waits for ever.
"""

import json
import signal
import threading
import time
from pathlib import Path

import pytest
from builders.bundled_model import FOLDER, VOCABULARY
from builders.cases import for_each

from penstock.engine.grammar import pool as pool_module
from penstock.engine.grammar.compiler import Compiler, Outcome
from penstock.engine.grammar.constraint import Busy
from penstock.engine.grammar.round_robin import RoundRobin
from penstock.engine.grammar.trial import BOUNDS, Trial
from penstock.protocol.parameters.guided import Grammar
from penstock.protocol.processes.bounded_process import BoundedProcess, JobDiedError

CHAIN = "start: r0\n" + "".join(f"r{number}: r{number + 1}\n" for number in range(20_000)) + 'r20000: "x"\n'
# The intersection of so many expressions takes ever twice as long.
EXPONENTIAL = json.dumps({"allOf": [{"type": "string", "pattern": f".*a.{{{number}}}b"} for number in range(30)]})


class Waiting:
    """A compiler and whoever waits for it."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.compiler = Compiler(FOLDER, VOCABULARY, self.woken.set)

    def outcome(self, grammar: Grammar, seconds: float = 60) -> Outcome:
        end = time.monotonic() + seconds
        found = self.compiler.find(grammar)
        while found is None:
            assert self.woken.wait(end - time.monotonic()), "nobody said that it is there"
            self.woken.clear()
            found = dict(self.compiler.collect()).get(grammar)
        return found


@pytest.fixture(scope="module")
def waiting() -> Waiting:
    return Waiting()


def test_a_grammar_is_compiled_once_and_kept_and_one_that_is_none_is_refused_with_the_compilers_words(waiting):
    grammar = Grammar("regex", "[a-c]+")
    matcher = waiting.outcome(grammar)
    assert waiting.compiler.find(grammar) is matcher
    allowed = matcher.mask([2])
    assert sum(byte.bit_count() for byte in allowed) >= 3
    assert not allowed[0] >> 2 & 1  # nothing has been said yet, so it may not end
    assert not isinstance(waiting.outcome(Grammar("lark", CHAIN)), str), "its rules overflow a usual stack"
    assert waiting.outcome(Grammar("regex", "(a")) == "The regular expression (a can't be used: unclosed group."
    assert "nobody" in waiting.outcome(Grammar("lark", "start: nobody"))
    assert "Unsatisfiable" in waiting.outcome(Grammar("json", "false"))


def test_so_many_grammars_are_kept_and_no_more(waiting, monkeypatch):
    monkeypatch.setattr("penstock.engine.grammar.compiler._MOST_KEPT", 3)
    for number in range(5):
        waiting.outcome(Grammar("regex", f"x{{{number + 1}}}"))
    assert len(waiting.compiler._kept) == 3


@for_each("mebibytes, kept", [(1, 9), (32, 6), (500, 4)])
def test_grammars_that_take_much_of_the_heap_are_kept_in_smaller_numbers(waiting, monkeypatch, mebibytes, kept):
    compiler, trimmed = waiting.compiler, []
    monkeypatch.setattr("penstock.engine.grammar.compiler.heap_bytes", lambda: len(compiler._kept) * mebibytes << 20)
    monkeypatch.setattr("penstock.engine.grammar.compiler.trim_heap", lambda: trimmed.append(True))
    monkeypatch.setattr(compiler, "_usual_heap", 0)
    compiler._kept.clear()
    for number in range(9):
        waiting.outcome(Grammar("regex", f"heap{number}"))
    assert len(compiler._kept) == kept and bool(trimmed) == (kept < 9)
    assert list(compiler._kept)[-1].text == "heap8", "those used last are kept"


@for_each("grammar, number", [
    (Grammar("json", EXPONENTIAL), signal.SIGCONT), (Grammar("regex", "a+"), signal.SIGSTOP),
    (Grammar("regex", "a" * 300_000), signal.SIGSTOP),  # more than a pipe holds
])  # fmt: skip
def test_a_trial_without_end_or_that_is_stopped_is_ended_and_the_next_grammar_is_tried(grammar, number):
    """Within its processor time, which the long run waits for, by the clock."""
    trial = Trial(BOUNDS._replace(wall_seconds=0.5))
    trial._process.start()
    trial._process._process.send(number)
    with pytest.raises(JobDiedError, match="takes more than 0.5 s"):
        trial.fault(grammar)
    trial._process.bounds = BOUNDS
    assert trial.fault(Grammar("regex", "a")) is None


def test_a_grammar_whose_trial_died_is_tried_again_when_it_is_asked_for_again(waiting, monkeypatch):
    grammar = Grammar("regex", "killed[0-9]+")

    ready = BoundedProcess._ready

    def killed(helper):
        monkeypatch.undo()
        process, line = ready(helper)
        process.send(signal.SIGABRT)
        return process, line

    monkeypatch.setattr(BoundedProcess, "_ready", killed)
    assert "cannot be compiled" in waiting.outcome(grammar)
    assert not isinstance(waiting.outcome(grammar), str)


HOSTILE = [
    Grammar("json", EXPONENTIAL),
    Grammar("regex", "((a{1000}){1000}){1000}"),
    Grammar("regex", "(((a?){300}){300}){300}"),
    Grammar("lark", "start: " + " | ".join(f'"option {number}"' for number in range(25_000)) + "\n"),
    Grammar("lark", "start: T0\n" + "".join(f'T{n}: "a" T{n + 1}\n' for n in range(26_000)) + 'T26000: "x"\n'),
    Grammar("lark", "start: " + "(" * 250_000 + '"x"' + ")" * 250_000),
    Grammar("lark", 'start: ("a"{1,100000}){1,100000}\n'),
    Grammar("json", json.dumps({"type": "object", "properties": {f"p{n}": {} for n in range(20_000)}})),
    Grammar("json", json.dumps({"type": "array", "items": {"minLength": 10**6}, "minItems": 10**9})),
    Grammar("json", json.dumps({"enum": [f"value {n}" for n in range(30_000)]})),
]


@pytest.mark.long
@pytest.mark.parametrize("grammar", HOSTILE, ids=lambda grammar: f"{grammar.kind}-{grammar.text[:24]}")
def test_a_hostile_grammar_costs_a_bounded_time(waiting, grammar):
    waiting.outcome(grammar, seconds=150)
    assert not isinstance(waiting.outcome(Grammar("regex", "a|b")), str)


# --- turns -----------------------------------------------------------------------------------------------------------


class Compiling:
    """A compiler each of whose grammars takes until it is `released`; `begun` are those in the order of their turns."""

    def __init__(self, monkeypatch, threads=4):
        monkeypatch.setattr(pool_module, "_THREADS", threads)
        self.begun = []
        self.news = threading.Condition()
        self.released = 0
        self.compiler = Compiler(Path("/nowhere"), 100, self._wake)
        self.compiler._outcome = self._outcome

    def asks(self, client, *names):
        return [self.compiler.find(Grammar("regex", name), client) for name in names]

    def leaves(self, client, *names):
        for name in names:
            self.compiler.leave(Grammar("regex", name), client)

    def release(self, count=1_000_000):
        with self.news:
            self.released += count
            self.news.notify_all()

    def wait_until(self, holds):
        with self.news:
            assert self.news.wait_for(holds, 60), self.begun

    def collected(self, count):
        """So many outcomes, by the text of their grammars."""
        found = []
        self.wait_until(lambda: found.extend(self.compiler.collect()) or len(found) >= count)
        return {grammar.text: outcome for grammar, outcome in found}

    def _outcome(self, grammar):
        with self.news:
            self.begun.append(grammar.text)
            self.news.notify_all()
            number = len(self.begun)
            self.news.wait_for(lambda: number <= self.released)
        return "no grammar"

    def _wake(self):
        with self.news:
            self.news.notify_all()


def names(letter, count):
    return [f"{letter}{number}" for number in range(count)]


def test_no_client_has_all_threads(monkeypatch):
    compiling = Compiling(monkeypatch)
    compiling.asks("flood", *names("f", 200))
    compiling.wait_until(lambda: len(compiling.begun) == 3)
    compiling.asks("good", "good")
    compiling.wait_until(lambda: "good" in compiling.begun)
    assert len(compiling.begun) == 4
    compiling.leaves("flood", *names("f", 200))
    compiling.release()


def test_a_client_with_a_single_one_waits_for_one_of_each_other_client(monkeypatch):
    compiling = Compiling(monkeypatch, threads=2)
    compiling.asks("a", *names("a", 50))
    compiling.wait_until(lambda: compiling.begun)
    compiling.asks("b", *names("b", 50))
    compiling.wait_until(lambda: len(compiling.begun) == 2)
    compiling.asks("good", "good")
    compiling.release()
    compiling.collected(101)
    assert compiling.begun.index("good") <= 4
    assert [name for name in compiling.begun if name in names("a", 50)] == names("a", 50)


def test_the_only_client_has_all_threads_and_as_many_grammars_as_it_likes(monkeypatch):
    monkeypatch.setattr(pool_module, "_MOST_WAITING", 2)
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 0.0)
    compiling = Compiling(monkeypatch)
    assert compiling.asks("", *names("f", 50)) == [None] * 50
    compiling.wait_until(lambda: len(compiling.begun) == 4)
    compiling.release()
    assert set(compiling.collected(50).values()) == {"no grammar"}


def test_what_nobody_waits_for_any_more_is_not_compiled(monkeypatch):
    compiling = Compiling(monkeypatch)
    compiling.asks("flood", *names("f", 100))
    compiling.asks("other", "f50")
    compiling.wait_until(lambda: len(compiling.begun) == 4)
    assert "f50" in compiling.begun
    compiling.leaves("flood", *names("f", 100))
    compiling.release()
    assert set(compiling.collected(4)) == set(compiling.begun)
    compiling.asks("flood", "f99")
    assert compiling.collected(1) == {"f99": "no grammar"} and len(compiling.begun) == 5


def test_one_that_several_wait_for_is_compiled_once_at_the_first_of_their_turns(monkeypatch):
    compiling = Compiling(monkeypatch, threads=2)
    compiling.asks("a", *names("a", 10))
    compiling.wait_until(lambda: compiling.begun)
    compiling.asks("b", "b0", "a9")
    compiling.wait_until(lambda: len(compiling.begun) == 2)
    compiling.leaves("a", "a9")
    compiling.asks("a", "a9")
    compiling.release(2)
    compiling.wait_until(lambda: len(compiling.begun) == 4)  # both threads have taken their next turn
    compiling.release()
    compiling.collected(11)
    assert compiling.begun.count("a9") == 1 and compiling.begun.index("a9") < 4


@for_each("limit, value", [("_MOST_WAITING", 5), ("_MOST_CHARACTERS", 10)])
def test_a_client_that_has_too_many_waiting_is_told_and_others_are_not(monkeypatch, limit, value):
    monkeypatch.setattr(pool_module, limit, value)
    compiling = Compiling(monkeypatch)
    compiling.asks("flood", *names("f", 3))
    compiling.wait_until(lambda: len(compiling.begun) == 3)
    outcomes = compiling.asks("flood", *names("g", 8))
    assert outcomes[:5] == [None] * 5 and all(isinstance(each, Busy) for each in outcomes[5:])
    assert "Ask again later" in outcomes[5].why
    assert compiling.asks("good", "good") == [None]
    compiling.leaves("flood", "g0")
    assert compiling.asks("flood", "g7") == [None]
    compiling.release()


def test_a_client_that_has_no_turn_for_long_is_told_and_only_that_one(monkeypatch):
    compiling = Compiling(monkeypatch, threads=2)
    for client in ("a", "b"):
        compiling.asks(client, client)
    compiling.wait_until(lambda: len(compiling.begun) == 2)
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 0.3)
    compiling.asks("late", "late", "a")
    compiling.asks("", "late")
    told = compiling.collected(1)["late"]
    assert told.client == "late" and "Ask again later" in told.why
    compiling.release()
    assert compiling.collected(3) == {"a": "no grammar", "b": "no grammar", "late": "no grammar"}


def test_the_time_that_a_clients_own_take_is_no_waiting():
    turns = RoundRobin()
    for item in ("a0", "a1", "a2"):
        turns.put("a", item, now=1.0)
    turns.put("b", "b0", now=2.0)
    assert list(turns.oldest()) == [(1.0, "a", "a0"), (2.0, "b", "b0")]
    assert turns.take(now=40.0) == ("a", "a0")
    assert list(turns.oldest()) == [(2.0, "b", "b0"), (40.0, "a", "a1")]
