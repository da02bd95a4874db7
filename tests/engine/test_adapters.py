"""Adapters as the engine knows them: usable when all ranks have them, a key for each load, none unloaded in use."""

import pytest
from builders.engine_harness import Harness, prompt

from penstock.engine.adapters import AdapterTable
from penstock.protocol.adapter_messages import (
    NO_ADAPTER,
    AdapterLoaded,
    ListLoras,
    LoadAdapter,
    LoadLora,
    LoraAnswer,
    UnloadAdapter,
    UnloadLora,
)


class Told:
    def __init__(self, max_loras: int = 2, num_ranks: int = 2) -> None:
        self.to_workers: list[LoadAdapter | UnloadAdapter] = []
        self.answers: list[LoraAnswer] = []
        self.adapters = AdapterTable(max_loras, num_ranks, self.to_workers.append, self.answers.append)
        self.in_use: list[int] = []

    def take(self, *messages) -> "Told":
        for message in messages:
            self.adapters.take(message, self.in_use)
        return self

    def loaded(self, name: str) -> int:
        self.take(LoadLora(0, name, f"/{name}"))
        slot = self.to_workers[-1].adapter
        self.take(*(AdapterLoaded(rank, slot) for rank in range(self.adapters.num_ranks)))
        return slot


@pytest.fixture
def told() -> Told:
    return Told()


def test_an_adapter_can_be_used_once_every_rank_has_answered(told):
    told.take(LoadLora(7, "one", "/one"))
    assert told.to_workers == [LoadAdapter(0, "/one")]
    for rank in (1, 0):
        assert told.adapters.find("one").slot == NO_ADAPTER and not told.answers
        assert "still being loaded" in told.adapters.refusal("one")
        told.take(AdapterLoaded(rank, 0))
    assert told.answers == [LoraAnswer(7, ["one"])]
    assert told.adapters.find("one").slot == 0 and told.adapters.refusal("one") is None


def test_one_that_a_rank_could_not_load_is_gone_from_all_and_another_may_be_loaded_at_the_same_time(told):
    told.take(LoadLora(7, "one", "/one"), LoadLora(8, "two", "/two"))
    told.take(AdapterLoaded(0, 1), AdapterLoaded(1, 0, "rank", "too large"), AdapterLoaded(1, 1), AdapterLoaded(0, 0))
    assert told.answers == [LoraAnswer(8, ["two"]), LoraAnswer(7, ["two"], "rank", "too large")]
    assert told.to_workers[-1] == UnloadAdapter(0)
    assert told.loaded("one") == 0
    assert told.take(ListLoras(3)).answers[-1] == LoraAnswer(3, ["two", "one"])


def test_slots_are_used_again_and_keys_never(told):
    told.loaded("one")
    told.loaded("two")
    before = told.adapters.find("one")
    told.take(UnloadLora(5, "one"))
    assert told.to_workers[-1] == UnloadAdapter(before.slot)
    assert told.answers[-1] == LoraAnswer(5, ["two"])
    assert told.loaded("one") == before.slot
    assert told.adapters.find("one").key not in (before.key, told.adapters.find("two").key, None)


def test_what_cannot_be_done_is_answered_with_a_reason(told):
    told.loaded("one")
    told.in_use = [0, NO_ADAPTER, 0, 0]
    cases = [
        (LoadLora(1, "one", "/one"), "loaded", "'one' already"),
        (UnloadLora(2, "one"), "busy", "in use by 3 running or waiting answers"),
        (UnloadLora(3, "none"), "unknown", "Loaded are 'one'"),
    ]
    for message, reason, sentence in cases:
        answer = told.take(message).answers[-1]
        assert (answer.query, answer.reason) == (message.query, reason) and sentence in answer.message
    told.take(LoadLora(4, "two", "/two"), UnloadLora(5, "two"))
    assert told.answers[-1].reason == "busy"
    told.take(LoadLora(6, "three", "/three"))
    assert told.answers[-1].reason == "number" and "max_loras=2" in told.answers[-1].message


def harness(*names: str) -> Harness:
    told = Told(max_loras=4, num_ranks=1)
    harness = Harness(adapters=told.adapters)
    for name in names:
        told.loaded(name)
    return harness


def in_use(engine: Harness) -> list[int]:
    return [sequence.request.adapter for sequence in engine.scheduler.sequences.values()]


def test_those_that_run_and_those_that_wait_use_an_adapter():
    engine = harness("one", "two").add(*(prompt(number, [1, 2, number], lora_name="one") for number in range(10)))
    engine.plan()
    assert in_use(engine) == [0] * 10
    engine.finish()
    engine.abort(*(number * 128 for number in range(9)))
    assert in_use(engine) == [0]
    engine.run()
    assert in_use(engine) == []
