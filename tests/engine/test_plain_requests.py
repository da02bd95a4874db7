"""Plain requests run through none of what is there for others: grammars, beams, adapters, a second tier."""

import sys
from types import FrameType
from typing import Any

from builders.engine_harness import Harness, prompt

from penstock.protocol.parameters.beams import BeamSearchParams

OF_OTHERS = ("beam_decoding", "beams", "guided_decoding", "constraints", "constraint", "adapters", "offload")


def modules_of(harness: Harness) -> set[str]:
    """The modules of the engine that are called while the harness runs, by their last names."""
    called = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("penstock.engine."):
            called.add(frame.f_globals["__name__"].rpartition(".")[2])

    sys.setprofile(note)
    try:
        harness.run()
    finally:
        sys.setprofile(None)
    return called


def test_plain_requests_call_nothing_of_the_others():
    harness = Harness()
    harness.scheduler.check = lambda: None  # looks at everything
    for number in range(1, 12):
        harness.add(prompt(number, range(number, number + 9), n=2))
    called = modules_of(harness)
    assert "scheduler" in called and not called & set(OF_OTHERS)


def test_they_are_not_called_either_once_the_last_beam_has_ended():
    harness = Harness()
    search = prompt(1, [3, 1, 4], n=3, max_tokens=4)
    search.beams = BeamSearchParams(beam_width=3, max_tokens=4)
    harness.add(search)
    assert "beam_decoding" in modules_of(harness)
    harness.scheduler.check = lambda: None
    harness.add(prompt(2, [3, 1, 4]))
    assert not modules_of(harness) & set(OF_OTHERS)
