"""Clients take turns at having their grammars compiled; what nobody waits for is not, and nobody waits for ever."""

import threading
from pathlib import Path

import pytest

from penstock.engine.grammar import pool as pool_module
from penstock.engine.grammar.compiler import Compiler
from penstock.engine.grammar.constraint import Busy
from penstock.engine.grammar.round_robin import RoundRobin
from penstock.protocol.parameters.guided import Grammar


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
            assert self.news.wait_for(holds, 20), self.begun

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


@pytest.mark.parametrize("limit, value", [("_MOST_WAITING", 5), ("_MOST_CHARACTERS", 10)])
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
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 0.3)
    compiling = Compiling(monkeypatch, threads=2)
    for client in ("a", "b"):
        compiling.asks(client, client)
    compiling.wait_until(lambda: len(compiling.begun) == 2)
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
