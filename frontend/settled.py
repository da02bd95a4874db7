"""Parameters as a model takes them, remembered for as long as a batch needs them: its requests share one object.

One memory for all clients of a model, bounded in entries and in bytes. Safe from any thread.
"""

import threading
from typing import NamedTuple

import msgspec

from ..protocol.guided import Grammar
from ..protocol.sampling import SamplingParams

# A request brings as much as it likes; the last one is remembered whatever its size.
_MOST, _MOST_BYTES = 256, 1 << 20


class Settled(NamedTuple):
    given: SamplingParams  # a copy to compare with: the caller may change the object between two calls
    params: SamplingParams  # what belongs to the model is filled in
    grammar: Grammar | None

    @property
    def num_bytes(self) -> int:
        return len(msgspec.msgpack.encode((self.params, self.grammar)))


class SettledParams:
    def __init__(self) -> None:
        self._found: dict[int, Settled] = {}  # by the identity of what was given
        self._num_bytes = 0
        self._lock = threading.Lock()

    def get(self, params: SamplingParams) -> Settled | None:
        found = self._found.get(id(params))
        return found if found is not None and found.given == params else None

    def remember(self, params: SamplingParams, settled: Settled) -> None:
        num_bytes = settled.num_bytes
        with self._lock:
            if len(self._found) >= _MOST or self._num_bytes + num_bytes > _MOST_BYTES:
                self._found.clear()
                self._num_bytes = 0
            self._found[id(params)] = settled
            self._num_bytes += num_bytes
