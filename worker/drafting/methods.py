"""The drafter that the options ask for."""

from ...protocol.options.config import EngineConfig
from .drafter import Drafter
from .replay import Replay
from .suffix import Suffix


def drafter_of(config: EngineConfig) -> Drafter:
    return Drafter([Replay(), Suffix()])
