"""Requests outlive their tree: whatever dies when, answers are those that they would have been.

Real transports over a stand-in for their tree, which dies when a test wants, and is driven by hand.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from builders.cases import for_each
from builders.hand_driven_tree import Client, HandDrivenTree, Life

from penstock.frontend.daemon.survivors import Survivors
from penstock.protocol.errors import EngineDeadError, OutOfMemoryError, RequestError
from penstock.protocol.messages import sequence_id


def session_of(tree: HandDrivenTree, decode: Callable[..., Any] | None = None) -> Any:
    threads = SimpleNamespace(media=SimpleNamespace(submit=decode))
    return SimpleNamespace(transport=tree, door=SimpleNamespace(), stamps=frozenset(), threads=threads)


class OneModel(Life):
    """Requests and deaths of one model, at random, and what must become of each request.

    Other threads act while one submits, ends requests or closes a tree, except where the lock keeps them out.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.survivors = Survivors()
        self.has_seen_death: set[int] = set()
        self.start()

    def start(self) -> None:
        if self.tree is None or self.is_dead:
            self.transport = self.tree = HandDrivenTree(self.meanwhile)
            self.is_dead = False
            self.survivors.go_on(session_of(self.tree, lambda work, session, source, client: self.decode_later(source)))
            left = {number for number, client in enumerate(self.clients) if client.has_left}
            assert self.tree.submitted == sorted(set(self.tree.submitted) - left)

    tree: Any = None
    is_dead = False  # and its requests have been taken over

    def live(self, num_actions: int) -> None:
        for _ in range(num_actions):
            self.act()
        while self.is_dead or self.decodings or self.tree.samples:
            self.start()
            self.decode()
            self.step()

    def act(self) -> None:
        actions = [self.ask, self.step, self.read, self.die, self.leave, self.decode, self.start]
        [action] = self.chosen.choices(actions, (4, 10, 3, 1, 1, 1, 3))
        action()

    def meanwhile(self) -> None:
        if self.depth < 3 and not self.survivors._lock._is_owned():
            self.depth += 1
            for _ in range(self.chosen.randrange(3)):
                self.act()
            self.depth -= 1

    def step(self) -> None:
        if self.tree.error is None:
            self.tree.step()

    def die(self) -> None:
        if self.tree.error is None:
            running = {number for number, client in enumerate(self.clients) if client.is_running}
            self.deaths.update(running & self.tree.computed)
            self.has_seen_death |= running
            self.tree.die()
            self.is_dead = True

    def check(self) -> None:
        assert len(self.survivors) == 0 and not self.tree._pending
        for number, client in enumerate(self.clients):
            client.read()
            request = client.request
            if client.end:
                assert client.end == "abort" or request.is_finished or number in self.unreadable
            elif self.deaths[number] > (1 if request.prompt.params.continue_on_restart else 0):
                assert isinstance(request.error, EngineDeadError)
            elif isinstance(request.error, RequestError):
                assert number in self.unreadable
            elif request.error is not None:  # it was in a tree that died before it was computed
                assert number in self.has_seen_death and not request.prompt.params.continue_on_restart
            else:
                client.check()
                assert len(client.notices) == self.deaths[number]


@for_each("seed", range(300))
def test_whatever_dies_when_each_answer_is_whole_or_fails_for_the_reason_that_it_must(seed):
    life = OneModel(seed)
    life.live(80)
    life.check()


def test_requests_end_with_the_cause_if_the_model_is_not_started_again_and_so_do_later_ones():
    survivors, tree = Survivors(), HandDrivenTree()
    survivors.go_on(session_of(tree))
    waiting = Client(0, True).submit(tree)
    tree.die()
    assert len(survivors) == 1 and waiting.request.error is None
    survivors.fail(OutOfMemoryError("no memory is left"))
    late = Client(1, True).submit(tree)
    assert [str(each.request.error) for each in (waiting, late)] == ["no memory is left"] * 2


def test_requests_do_not_go_on_from_other_files_and_neither_do_those_that_come_late():
    survivors, tree = Survivors(), HandDrivenTree()
    survivors.go_on(session_of(tree))
    begun, new = Client(0, True).submit(tree), Client(1, True).submit(tree)
    tree.samples.pop(sequence_id(1, 0))
    tree.step()
    survivors.keep_door(SimpleNamespace(transport=tree, stamps={"weights"}, close_helpers=lambda: None))
    tree.die()
    again = HandDrivenTree()
    survivors.go_on(session_of(again))
    late = [Client(2, False).submit(tree)]
    again.die()
    late.append(Client(3, False).submit(tree))
    survivors.go_on(session_of(again := HandDrivenTree()))
    assert all("files that have changed" in str(each.request.error) for each in (begun, new, *late))
    assert again.submitted == [] and len(survivors) == 0
