"""Several trees answer as one: whatever dies when, each request is answered once, as alone.

Real transports over trees that a test drives by hand (`builders/hand_driven_tree.py`), with no processes.
"""

import asyncio
import random
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from builders.cases import for_each
from builders.hand_driven_tree import PICTURE, Client, HandDrivenTree, Life

from penstock.frontend.http.metrics import HttpFigures
from penstock.frontend.models.model_files import ModelFiles
from penstock.frontend.replicas.moves import MOST_DEATHS
from penstock.frontend.replicas.replica import Replica, ReplicaTransport
from penstock.frontend.replicas.replicas import Replicas
from penstock.frontend.replicas.totals import Totals
from penstock.protocol.errors import AdapterError, ConfigError, EngineDeadError, RequestError
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.stats import Stats

PLAN = MemoryPlan("cpu", "a test", 0, 0, 0, [GroupPlan("full", 1, 1, 512)], 4096, 4096, 1000, "float32", "fp32")


class HandDrivenReplica(HandDrivenTree, ReplicaTransport):
    def __init__(self, meanwhile: Any) -> None:
        super().__init__(meanwhile)
        self.works = {}
        self.tree.is_ready, self.tree.terminate = True, lambda: None

    def wait_until_ready(self) -> MemoryPlan:
        return PLAN

    def ask_stats(self, sequence_ids=()) -> "Future[Stats]":
        self.check()
        answer: Future[Stats] = Future()
        count = len(self.samples)
        answer.set_result(Stats(count, 0, 1, 1, 1, 0, 0, 0, 0, accepted_by_position=[1] * count))
        return answer

    def close(self) -> None:
        self.is_closed = True


class HandDrivenReplicas(Replicas):
    """Trees without processes. One that dies is started again when the test says so."""

    def __init__(self, count: int, decode: Any = None, meanwhile: Any = lambda: None) -> None:
        self.meanwhile = meanwhile
        self.dead: list[Replica] = []
        config = EngineConfig.from_options("m", data_parallel_size=count, num_threads=count, device="cpu", quiet=True)
        super().__init__(config, ModelFiles("m", Path("/nowhere"), Path("/nowhere")), (), decode)
        self.starts.begin = self.dead.append  # type: ignore[method-assign]
        self.wait_until_ready()

    def _starter(self, files: ModelFiles, shown: tuple[str, ...]) -> Any:
        return lambda share: HandDrivenReplica(lambda: self.meanwhile())

    @property
    def trees(self) -> list[Any]:
        return [replica.transport for replica in self.replicas]

    def start(self, replica: Replica) -> None:
        self.dead.remove(replica)
        replica.deaths_in_a_row = 0
        self.starts.start_again(replica)


class ManyTrees(Life):
    """Requests to many trees and their deaths, at random. Other threads act where no lock keeps them out."""

    def __init__(self, seed: int, count: int) -> None:
        super().__init__(seed)
        self.vain: Counter[int] = Counter()  # the deaths since it said its last token
        self.said: Counter[int] = Counter()
        self.lost: set[int] = set()  # that don't outlive a tree, and were in one that died
        self.transport = self.replicas = HandDrivenReplicas(count, self.decode_later, self.meanwhile)

    def live(self, num_actions: int) -> None:
        actions = [self.ask, self.step, self.read, self.die, self.leave, self.decode, self.start]
        for _ in range(num_actions):
            self.chosen.choices(actions, (4, 12, 3, 2, 1, 1, 2))[0]()
        while self.replicas.dead or self.decodings or any(tree.samples for tree in self.living):
            self.start()
            self.decode()
            for tree in self.living:
                tree.step()

    @property
    def living(self) -> list[Any]:
        return [tree for tree in self.replicas.trees if tree.error is None]

    def meanwhile(self) -> None:
        if self.depth < 2 and not self.replicas.turn._is_owned():
            self.depth += 1
            for _ in range(self.chosen.randrange(2)):
                self.chosen.choice([self.ask, self.read, self.leave, self.decode, self.start])()
            self.depth -= 1

    def step(self) -> None:
        if self.living:
            self.chosen.choice(self.living).step()

    def die(self) -> None:
        if self.living:
            tree = self.chosen.choice(self.living)
            for request in list(tree._pending.values()):
                if self.clients[request.request_id].end == "" and not request.is_finished:
                    number = request.request_id
                    self.deaths[number] += request.has_started
                    if request.num_generated > self.said[number]:
                        self.vain[number] = 0
                    self.said[number] = request.num_generated
                    self.vain[number] += request.has_started
                    if not request.prompt.params.continue_on_restart:
                        self.lost.add(request.request_id)
            tree.die()

    def start(self) -> None:
        if self.replicas.dead and not self.replicas.adapters.change.locked():
            self.replicas.start(self.chosen.choice(self.replicas.dead))

    def check(self) -> None:
        assert not self.replicas._pending and all(not tree._pending and not tree.works for tree in self.replicas.trees)
        assert self.replicas.choice.load == pytest.approx([0.0] * len(self.replicas.trees), abs=1e-6)
        for number, client in enumerate(self.clients):
            client.read()
            if client.end:
                assert client.end == "abort" or client.request.is_finished or number in self.unreadable
            elif number in self.unreadable and isinstance(client.request.error, RequestError):
                pass
            elif number in self.lost or self.vain[number] > MOST_DEATHS:
                assert isinstance(client.request.error, EngineDeadError)
            else:
                client.check()
                assert len(client.notices) <= self.deaths[number] and bool(client.notices) == bool(self.deaths[number])


@for_each("seed", range(40))
def test_whatever_dies_when_each_answer_is_whole_or_fails_for_the_reason_that_it_must(seed):
    life = ManyTrees(seed, 1 + seed % 5)
    life.live(90)
    life.check()


def test_sixty_four_trees_that_keep_dying_lose_nothing():
    life = ManyTrees(1, 64)
    life.live(2500)
    life.check()


def test_a_request_goes_on_in_another_tree_at_once_and_waits_where_there_is_none():
    replicas = HandDrivenReplicas(2)
    clients = [Client(number, True).submit(replicas) for number in range(6)]
    first, second = replicas.trees
    assert {*first._pending, *second._pending} == set(range(6)) and first._pending and second._pending
    for tree in (first, second):
        tree.step()
    first.die()
    assert set(second._pending) == {each.request.request_id for each in clients if not each.request.is_finished}
    for tree in (first, second):
        tree.silent = mock.AsyncMock(return_value=["worker 0"])
    assert asyncio.run(replicas.silent(1)) == ["tree 1: worker 0"]
    second.die()
    assert replicas.state == "ready" and len(replicas._pending) > 0
    late = Client(6, False).submit(replicas)
    left = Client(7, False).submit(replicas)
    left.leave("abort")
    assert [each.running for each in replicas.stats().replicas] == [0, 0]
    replicas.start(replicas.replicas[1])
    assert not replicas._pending and 7 not in replicas.trees[1]._pending
    while replicas.trees[1].samples:
        replicas.trees[1].step()
    for client in (*clients, late):
        client.read()
        client.check()


def test_a_request_keeps_its_picture_if_its_tree_dies_while_it_is_sent():
    replicas = HandDrivenReplicas(1)
    client = Client(0, True)
    client.request.source, client.request.prompt.media = client.request, [PICTURE]
    replicas.trees[0].tree.engine = SimpleNamespace(send=lambda message: replicas.trees[0].die())
    client.submit(replicas)
    replicas.start(replicas.replicas[0])
    assert replicas.trees[0].submitted == [0]


def test_an_adapter_is_not_listed_if_its_trees_die_while_it_loads(tmp_path):
    replicas = HandDrivenReplicas(1)
    (tmp_path / "adapter_config.json").write_text("{}")
    replicas.replicas[0].adapters = SimpleNamespace(load=lambda name, folder: None, stamps={})
    with pytest.raises(EngineDeadError, match="Try again later"):
        replicas.adapters.load("it", tmp_path)
    with pytest.raises(AdapterError, match="no comma"):
        replicas.adapters.load("it,other", tmp_path)
    assert replicas.adapters.folders() == {}


def test_figures_are_the_sums_over_all_trees_and_each_ones_own():
    replicas = HandDrivenReplicas(3)
    for number in range(5):
        Client(number, False).submit(replicas)
    replicas.trees[0].die()
    stats = replicas.stats()
    assert stats.running == sum(each.running for each in stats.replicas) == 5
    assert stats.replicas[0].running == 0 and stats.blocks == 2
    lines = HttpFigures().text({"m": stats}, {}).splitlines()
    assert f'penstock_requests_running{{model="m"}} {stats.running}' in lines
    for number, each in enumerate(stats.replicas):
        assert f'penstock_replica_requests_running{{model="m",replica="{number}"}} {each.running}' in lines
        assert f'vllm:num_requests_running{{model_name="m",engine="{number}"}} {each.running}' in lines
    longest = max(len(each.accepted_by_position) for each in stats.replicas)
    assert len(stats.accepted_by_position) == longest and sum(stats.accepted_by_position) == 5


def test_sums_of_counters_never_fall_whatever_dies_and_whichever_answer_comes_last():
    chance = random.Random(1)
    for _ in range(40):
        totals, lives, counts, asked = Totals(), [1] * 3, [0] * 3, []
        last = Counter()
        for _ in range(60):
            tree = chance.randrange(3)
            if chance.random() < 0.15:
                lives[tree], counts[tree] = lives[tree] + 1, 0
            counts[tree] += chance.randrange(5)
            if chance.random() < 0.5:
                present = [chance.random() < 0.8 for _ in range(2)] + [True]
                answers = [((each, lives[each]), Future()) if there else None for each, there in enumerate(present)]
                asked.append((totals.of(answers), answers, counts.copy()))
            if asked and chance.random() < 0.5:
                whole, answers, had = asked.pop(chance.randrange(len(asked)))
                for count, answer in zip(had, answers):
                    if answer is not None and chance.random() < 0.2:
                        answer[1].set_exception(EngineDeadError("killed"))
                    elif answer is not None:
                        positions = list(range(count, 0, -1))
                        answer[1].set_result(Stats(count, 0, 0, 0, count, 0, 0, 0, 0, accepted_by_position=positions))
                stats = whole.result(0)
                now = Counter({"steps": stats.steps, **dict(enumerate(stats.accepted_by_position))})
                assert not last - now, "a sum has fallen"
                assert stats.running == sum(each.running for each in stats.replicas)
                last = now
        answers = [((each, lives[each]), Future()) for each in range(3)]
        whole, before = totals.of(answers), last["steps"]
        for count, (_, answer) in zip(counts, answers):
            answer.set_result(Stats(count, 0, 0, 0, count, 0, 0, 0, 0))
        assert before <= whole.result(0).steps


def test_a_tree_that_is_started_again_adds_to_what_it_had_counted():
    replicas = HandDrivenReplicas(2)
    assert replicas.stats().steps == 2
    replicas.trees[0].die()
    assert replicas.stats().steps == 2 and replicas.stats().blocks == 1
    replicas.start(replicas.replicas[0])
    stats = replicas.stats()
    assert stats.steps == 3 and [each.steps for each in stats.replicas] == [1, 1] and stats.blocks == 2


def test_trees_that_keep_dying_are_given_up_together_and_requests_get_the_cause():
    replicas = HandDrivenReplicas(2)
    died: list[Any] = []
    replicas.on_death = died.append
    waiting = Client(0, True).submit(replicas)
    for _ in range(4):
        for replica in replicas.replicas:
            replica.transport.die()
            if replica in replicas.dead and replicas.error is None:
                deaths = replica.deaths_in_a_row
                replicas.start(replica)
                replica.deaths_in_a_row = deaths
    for replica in replicas.replicas:
        if replica.transport.error is None:
            replica.transport.die()
    assert str(waiting.request.error) == "worker 0 was killed" and died == [replicas.error]
    with pytest.raises(EngineDeadError, match="worker 0 was killed"):
        Client(1, True).submit(replicas)


def test_a_tree_is_not_started_again_from_files_that_have_changed(tmp_path):
    replicas = HandDrivenReplicas(2)
    replicas.starts._files = ModelFiles("m", tmp_path, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    replicas.trees[0].die()
    replica = replicas.dead.pop()
    replica.deaths_in_a_row = 0
    replicas.starts._closing.wait = lambda seconds: replica.deaths_in_a_row > 2  # type: ignore[method-assign]
    replicas.starts.start_again(replica)
    assert replica.deaths_in_a_row == 3 and not replica.is_open and replicas.error is None


def test_a_start_that_fails_names_the_tree_and_its_share(monkeypatch):
    trees: list[HandDrivenReplica] = []

    def start(share: Any) -> HandDrivenReplica:
        trees.append(HandDrivenReplica(lambda: None))
        if len(trees) == 2:
            trees[1].wait_until_ready = mock.Mock(side_effect=ConfigError("kv_cache_memory=5 holds no KV block."))
        return trees[-1]

    monkeypatch.setattr(HandDrivenReplicas, "_starter", lambda *files: start)
    with pytest.raises(ConfigError, match=r"data_parallel_size=2: tree 1 could not be started\. kv_cache_memory=5"):
        HandDrivenReplicas(2)
