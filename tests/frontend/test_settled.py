"""Parameters that are remembered for a batch: known again while they are the same, and few, however large they are."""

import tracemalloc

import pytest
from builders.door import door_of_pocket

from penstock.frontend.settled import Settled, SettledParams
from penstock.protocol.guided import Grammar, GuidedDecodingParams
from penstock.protocol.sampling import SamplingParams


def settled(params: SamplingParams, text: str = "x") -> Settled:
    return Settled(SamplingParams(temperature=params.temperature), params, Grammar("json", text))


def test_the_same_object_is_known_until_it_changes():
    memory, params = SettledParams(), SamplingParams(temperature=0.5)
    memory.remember(params, settled(params))
    assert memory.get(params) is not None
    assert memory.get(SamplingParams(temperature=0.5)) is None
    params.temperature = 0.6
    assert memory.get(params) is None


@pytest.mark.parametrize(("size", "most"), [(400_000, 2), (4_000_000, 1), (1, 256)])
def test_what_is_remembered_is_bounded(size, most):
    memory = SettledParams()
    given = [SamplingParams(temperature=number / 1000) for number in range(600)]
    for params in given:
        memory.remember(params, settled(params, "x" * size))
        assert memory.get(params) is not None
        assert sum(memory.get(other) is not None for other in given) <= most


def test_large_schemas_of_many_clients_are_not_kept():
    door, schema = door_of_pocket(), {"enum": [f"{number:07}" for number in range(40_000)]}
    tracemalloc.start()
    try:
        for client in range(8):
            params = SamplingParams(guided_decoding=GuidedDecodingParams(json=schema))
            door.of(str(client)).admit(list(door.asked(["a"], params)), notify=lambda request: None)
        assert tracemalloc.get_traced_memory()[0] < 4_000_000
    finally:
        tracemalloc.stop()
