"""Grammars compiled beside the loop: each once, in bounds, and a hostile one ends alone."""

import json
import os
import signal
import threading
import time

import pytest
from builders.bundled_model import FOLDER, VOCABULARY

from penstock.engine.grammar.compiler import Compiler, Outcome
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


def test_a_grammar_is_compiled_once_and_kept(waiting):
    grammar = Grammar("regex", "[a-c]+")
    matcher = waiting.outcome(grammar)
    assert waiting.compiler.find(grammar) is matcher
    allowed = matcher.mask([2])
    assert sum(byte.bit_count() for byte in allowed) >= 3
    assert not allowed[0] >> 2 & 1  # nothing has been said yet, so it may not end


def test_forks_go_ways_of_their_own(waiting):
    first = waiting.outcome(Grammar("regex", "ab|cd")).fork()
    second = first.fork()
    [a], [c] = (waiting.compiler._vocabulary.tokens.tokenize_str(text) for text in "ac")
    assert first.take([a]) and second.take([c])
    assert first.mask([]) != second.mask([])


def test_a_grammar_that_is_none_is_refused_with_the_compilers_words(waiting):
    assert "regex parse error:\n    (a\n    ^\nerror: unclosed group\n" in waiting.outcome(Grammar("regex", "(a"))
    assert "nobody" in waiting.outcome(Grammar("lark", "start: nobody"))
    assert "Unsatisfiable" in waiting.outcome(Grammar("json", "false"))


def test_so_many_grammars_are_kept_and_no_more(waiting, monkeypatch):
    monkeypatch.setattr("penstock.engine.grammar.compiler._MOST_KEPT", 3)
    for number in range(5):
        waiting.outcome(Grammar("regex", f"x{{{number + 1}}}"))
    assert len(waiting.compiler._kept) == 3


def test_a_chain_of_rules_that_overflows_a_usual_stack_is_compiled(waiting):
    assert not isinstance(waiting.outcome(Grammar("lark", CHAIN)), str)


def test_a_grammar_without_end_is_ended_and_the_next_one_is_tried():
    trial = Trial(BOUNDS._replace(cpu_seconds=1))
    with pytest.raises(JobDiedError, match="1 s of processor time"):
        trial.fault(Grammar("json", EXPONENTIAL))
    assert trial.fault(Grammar("regex", "a")) is None


@pytest.mark.parametrize("text", ["a+", "a" * 300_000], ids=["small", "more than a pipe holds"])
def test_a_trial_that_is_stopped_is_ended_by_the_clock_and_replaced(text):
    trial = Trial(BOUNDS._replace(wall_seconds=0.5))
    trial._process.start()
    os.kill(trial._process._process.popen.pid, signal.SIGSTOP)
    with pytest.raises(JobDiedError, match="takes more than 0.5 s"):
        trial.fault(Grammar("regex", text))
    trial._process.bounds = BOUNDS
    assert trial.fault(Grammar("regex", "a")) is None


def test_a_grammar_whose_trial_died_is_tried_again_when_it_is_asked_for_again(waiting, monkeypatch):
    grammar = Grammar("regex", "killed[0-9]+")

    answer = BoundedProcess._ask

    def killed(helper, job):
        monkeypatch.undo()
        helper._process.send(signal.SIGABRT)
        return answer(helper, job)

    monkeypatch.setattr(BoundedProcess, "_ask", killed)
    assert "cannot be compiled" in waiting.outcome(grammar)
    assert not isinstance(waiting.outcome(grammar), str)


@pytest.mark.long
@pytest.mark.parametrize(
    "grammar",
    [
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
    ],
    ids=lambda grammar: f"{grammar.kind}-{grammar.text[:24]}",
)
def test_a_hostile_grammar_costs_a_bounded_time(waiting, grammar):
    waiting.outcome(grammar, seconds=150)
    assert not isinstance(waiting.outcome(Grammar("regex", "a|b")), str)
