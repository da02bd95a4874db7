"""Every call in every state gives the status that the table lists, from four threads over three models.

A reference of a few lines says what each call gives. Calls that four threads make at once must give what some order of
them gives one after another; all orders that fit are followed. After each history nothing is left: no request, no
block, no queue without an end, no thread and no file descriptor.
"""

import copy
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from builders.tiny_model import tiny_model
from builders.warm_trees import WarmTrees
from builders.watching import BOUND_SECONDS, wait_until
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from penstock.allspark import AsModelConfig, AsStatus, Engine, ResultQueue

NAMES = ("one", "two", "three")
THREADS = 4

SUCCESS, INVALID = "ALLSPARK_SUCCESS", "ALLSPARK_INVALID_CALL_ERROR"
WRONG, TOO_MUCH, DENIED = "ALLSPARK_PARAM_ERROR", "ALLSPARK_EXCEED_LIMIT_ERROR", "ALLSPARK_REQUEST_DENIED"
NO_ADAPTER, LOADED = "ALLSPARK_LORA_NOT_FOUND", "ALLSPARK_LORA_ALREADY_LOADED"
TOO_MANY = "ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR"


# Of each call that moves a model from one state to another: where it is allowed, and where it leads.
MOVES = {
    "install": (("Released",), "Initial"), "start": (("Initial", "Stop"), "Running"), "stop": (("Running",), "Stop"),
    "release": (("Initial", "Running", "Stop"), "Released"),
}  # fmt: skip


@dataclass
class Reference:
    """What the table says of an engine."""

    is_closed: bool = False
    states: dict[str, str] = field(default_factory=dict)
    handles: dict[int, str] = field(default_factory=dict)  # number of the call that gave it → model
    adapters: dict[str, set[str]] = field(default_factory=dict)

    def move(self, kind: str, name: str) -> str:
        before, after = MOVES[kind]
        if self.is_closed and (kind == "install" or (kind == "start" and name in self.states)):
            return DENIED
        if self.states.get(name, "Released") not in before:
            return INVALID
        self.states[name] = after
        if kind == "start":
            self.adapters[name] = set()
        elif kind == "release":
            self.handles = {number: model for number, model in self.handles.items() if model != name}
        return SUCCESS

    def request(self, name: str, number: int, fault: str | None) -> str:
        if name in self.states and self.is_closed:
            return DENIED
        if self.states.get(name) != "Running":
            return INVALID
        if fault is not None:
            return fault
        self.handles[number] = name
        return SUCCESS

    def of_handle(self, name: str, number: int, *, forgets: bool) -> str:
        if name not in self.states or self.handles.get(number) != name:
            return INVALID
        if forgets:
            del self.handles[number]
        return SUCCESS

    def load(self, name: str, adapter: str) -> str:
        if self.states.get(name) != "Running":
            return INVALID
        loaded = self.adapters[name]
        if adapter in loaded or len(loaded) == 2:
            return LOADED if adapter in loaded else TOO_MANY
        loaded.add(adapter)
        return SUCCESS

    def unload(self, name: str, adapter: str) -> str:
        if self.states.get(name) != "Running":
            return INVALID
        if adapter not in self.adapters[name]:
            return NO_ADAPTER
        self.adapters[name].remove(adapter)
        return SUCCESS

    def close(self) -> str:
        self.is_closed = True
        for name in self.states:
            self.move("release", name)
        return SUCCESS


# Requests that end soon, that end late, and that are wrong, each with the status where the model runs.
REQUESTS: dict[str, tuple[Any, dict[str, Any], str | None]] = {
    "short": ([5, 6, 7], {"max_length": 8, "early_stopping": False}, None),
    "long": ([8, 9, 10, 11], {"max_length": 250, "do_sample": False, "early_stopping": False}, None),
    "text": ("hello", {"max_length": 30}, None),
    "beams": ([3, 4, 5], {"num_beams": 2, "max_length": 12}, None),
    "empty": ([], {}, WRONG), "no text": ("", {}, WRONG), "two rows": ([[1, 2]], {}, WRONG),
    "not a number": ([5, 6], {"temperature": float("nan")}, WRONG),
    "unknown key": ([5, 6], {"temprature": 1.0}, WRONG),
    "pictures": ([5, 6], {"mm_info": object()}, WRONG),
    "beyond the vocabulary": ([10**6], {}, WRONG),
    "too long": ([5] * 256, {}, TOO_MUCH),
    "no room": ([5, 6, 7], {"max_length": 3}, TOO_MUCH),
    "unknown adapter": ([5, 6], {"lora_name": "nobody's"}, NO_ADAPTER),
}  # fmt: skip

# A call: what the engine does, and what the reference says.
Call = tuple[Callable[[], AsStatus], Callable[[Reference], str]]
names, kinds = st.sampled_from(NAMES), st.sampled_from(sorted(REQUESTS))
adapters = st.sampled_from(("a", "b", "c"))
operations = st.one_of(
    st.tuples(st.sampled_from(("install", "start", "start", "stop", "release")), names),
    st.tuples(st.just("request"), names, kinds),
    st.tuples(st.just("request"), names, st.sampled_from(("short", "long"))),
    st.tuples(st.sampled_from(("stop_request", "release_request", "sync_request")), names, st.integers(0, 40)),
    st.tuples(st.sampled_from(("load", "unload")), names, adapters),
)


class Histories(RuleBasedStateMachine):
    trees: WarmTrees
    adapter: Path
    threads: ThreadPoolExecutor

    @initialize(running=st.sets(names))
    def begin(self, running: set[str]) -> None:
        self.engine = Engine()
        self.worlds = [Reference()]
        self.started: dict[int, Any] = {}  # handles, by the numbers of their calls
        self.queues: list[ResultQueue] = []
        self.numbers = itertools.count()
        self.turns = itertools.cycle(range(THREADS))
        for name in sorted(running):
            self.one(("install", name))
            self.one(("start", name))

    @rule(operation=operations)
    def one(self, operation: tuple[Any, ...]) -> None:
        call, says = self.call(operation)
        self.compare([self.threads.submit(call).result(BOUND_SECONDS)], [says])

    @rule(several=st.lists(operations, min_size=2, max_size=THREADS))
    def together(self, several: list[tuple[Any, ...]]) -> None:
        calls = [self.call(operation) for operation in several]
        gate = threading.Barrier(len(calls))

        def at_once(call: Callable[[], AsStatus]) -> AsStatus:
            gate.wait(BOUND_SECONDS)
            return call()

        given = [self.threads.submit(at_once, call) for call, _ in calls]
        self.compare([each.result(BOUND_SECONDS) for each in given], [says for _, says in calls])

    @rule(name=names)
    def look(self, name: str) -> None:
        assert str(self.engine.model_state(name)) in {str(world.states.get(name)) for world in self.worlds}
        assert self.engine.get_as_engine_stat(name).model_name == name
        for queue in self.queues:
            assert queue.GeneratedLength() >= 0 and queue.RequestStatInfo()["context_token_length"] > 0

    @rule()
    def close(self) -> None:
        self.engine.close()
        self.compare([AsStatus.ALLSPARK_SUCCESS], [Reference.close])

    def call(self, operation: tuple[Any, ...]) -> Call:
        """What an operation calls, and what the reference says of it."""
        kind, name, *more = operation
        engine = self.engine
        if kind == "install":
            config = AsModelConfig(model_name=name, model_path=str(self.model), options={"quiet": True})
            return lambda: engine.install_model(config), lambda world: world.move(kind, name)
        if kind in ("start", "stop", "release"):
            return lambda: getattr(engine, f"{kind}_model")(name), lambda world: world.move(kind, name)
        if kind == "request":
            return self.request_call(name, *more)
        if kind in ("load", "unload"):
            folder = [self.adapter] if kind == "load" else []
            act = getattr(engine, f"{kind}_lora")
            return lambda: act(name, more[0], *folder), lambda world: getattr(world, kind)(name, more[0])
        number = sorted(self.started)[more[0] % len(self.started)] if self.started else -1
        if number < 0:
            return lambda: getattr(engine, kind)(name, "no handle"), lambda world: WRONG
        handle, forgets = self.started[number], kind == "release_request"
        return (
            lambda: getattr(engine, kind)(name, handle),
            lambda world: world.of_handle(name, number, forgets=forgets),
        )

    def request_call(self, name: str, kind: str) -> Call:
        prompt, config, fault = REQUESTS[kind]
        start = self.engine.start_request_text if isinstance(prompt, str) else self.engine.start_request_ids
        number = next(self.numbers)

        def request() -> AsStatus:
            status, handle, queue = start(name, None, prompt, config)
            assert (handle is None) == (queue is None) == (status != AsStatus.ALLSPARK_SUCCESS)
            if queue is not None:
                self.started[number] = handle
                self.queues.append(queue)
            return status

        return request, lambda world: world.request(name, number, fault)

    def compare(self, given: list[AsStatus], says: list[Callable[[Reference], str]]) -> None:
        """Some order of the calls, in one of the worlds that are possible so far, must give these statuses."""
        for status in given:
            assert bool(status.message) == (status.name != SUCCESS), status
        possible = []
        for world, order in itertools.product(self.worlds, itertools.permutations(range(len(says)))):
            after = copy.deepcopy(world)
            if all(says[each](after) == given[each].name for each in order) and after not in possible:
                possible.append(after)
        assert possible, f"{given} from {self.worlds}"
        self.worlds = possible

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.close()
        for queue in self.queues:
            assert queue.wait(BOUND_SECONDS), "a queue has no end"
            tokens = []
            while (elements := queue.Get()) is not None:
                tokens += elements.ids_from_generate
            assert queue.GenerateStatus().is_end and len(tokens) <= queue.GeneratedLength()
        assert not any(model._unfinished or model.session for model in self.engine._state.models.values())
        self.trees.check_that_nothing_is_left()


@pytest.fixture(scope="module")
def trees(tmp_path_factory) -> Iterator[WarmTrees]:
    Histories.model = tiny_model(tmp_path_factory.mktemp("models") / "tiny", "qwen3")
    Histories.adapter = tmp_path_factory.mktemp("adapter")
    trees = WarmTrees(Histories.model, len(NAMES))
    with trees.in_place(), ThreadPoolExecutor(THREADS) as Histories.threads:
        Histories.trees = trees
        yield trees
    trees.close()


def run(histories: int) -> None:
    many = settings(max_examples=histories, stateful_step_count=25, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Histories, settings=many)


def test_every_call_in_every_state_gives_the_listed_status_and_leaves_nothing(trees):
    run(5)  # what is opened once is open then, and all four threads have begun
    list(Histories.threads.map(threading.Barrier(THREADS).wait, [10] * THREADS))
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    run(50)
    wait_until(lambda: threading.active_count() <= threads, "the end of all threads")
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files, "the end of all descriptors")
