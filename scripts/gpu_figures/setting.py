"""Where a section measures, and what it hands back: the device, the sizes, the clock, and figures.

A section is a generator of `Part`s. A part is run on its own, so that one that fails costs its own figures only.
Nothing here imports torch before a clock is asked for.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

BANDWIDTH, MATRIX_RATE = "copy bandwidth", "bf16 matrix rate"
_BEYOND_CACHES = 256 << 20  # bytes
_ROUNDS = {"cuda": 15, "cpu": 3}


@dataclass(frozen=True)
class Figure:
    """A number with its unit and, where something bounds it, its share of that."""

    name: str
    value: float
    unit: str
    share: float | None = None
    of: str = ""


class Part(NamedTuple):
    """`figures` may give several, as they become known."""

    name: str
    figures: Callable[[], Iterator[Figure]]


@dataclass(frozen=True)
class Setting:
    device: str  # "cuda" or "cpu"
    is_small: bool  # sizes that a laptop computes: to try the code
    known: Mapping[str, float]  # values of the figures so far, by name
    folder: Path  # of this run, for models and what tuning finds
    rates: dict[str, float] = field(default_factory=dict)  # what one part leaves for the next of its section
    traces: Path | None = None  # where a profiler's are to stay

    def sized(self, full: Any, small: Any) -> Any:
        return small if self.is_small else full

    def bytes_figure(self, name: str, num_bytes: float, seconds: float) -> Figure:
        """How near memory's speed so many bytes in so many seconds come."""
        rate = num_bytes / seconds
        return Figure(name, seconds * 1e6, "µs", self.share(rate / 1e9, BANDWIDTH), BANDWIDTH)

    def operations_figure(self, name: str, operations: float, seconds: float) -> Figure:
        """How near the matrix units' speed so many operations in so many seconds come."""
        rate = operations / seconds
        return Figure(name, seconds * 1e6, "µs", self.share(rate / 1e12, MATRIX_RATE), MATRIX_RATE)

    def calls(self, num_bytes: float, make: Callable[[], Callable[[], object]]) -> list[Callable[[], object]]:
        """So many, each with tensors of its own from `make`, that no cache holds the bytes which all of them touch."""
        return [make() for _ in range(self.sized(min(64, int(_BEYOND_CACHES // num_bytes) + 2), 2))]

    def share(self, value: float, limit: str) -> float | None:
        return value / self.known[limit] if limit in self.known else None

    def clock(self) -> "Clock":
        return Clock(self.device, self.folder / "triton")


class Clock:
    """Seconds of calls that follow one another without a pause: captured as one graph on a card, called on a CPU."""

    def __init__(self, device: str, tuned: Path) -> None:
        self.device = device
        self.tuned = tuned  # where tuning keeps what it finds

    def seconds(self, calls: Sequence[Callable[[], object]]) -> float:
        """Of one call, the median over rounds of all. Give so many, each with tensors of its own, that no cache holds
        what the next one reads."""
        with self.learning():
            for call in calls:  # compiles, and is tuned
                call()
        round_of_all = self._captured(calls) if self.device == "cuda" else lambda: [call() for call in calls]
        taken = [self._timed(round_of_all) for _ in range(_ROUNDS[self.device] + 1)]
        return statistics.median(taken[1:]) / len(calls)

    def best(self, calls: Sequence[Callable[[], object]]) -> float:
        """Of one call, the best round: for the card's own limits."""
        for call in calls:
            call()
        return min(self._timed(lambda: [call() for call in calls]) for _ in range(_ROUNDS[self.device])) / len(calls)

    def _timed(self, run: Callable[[], object]) -> float:
        if self.device == "cpu":
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        import torch

        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def _captured(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        import torch

        torch.cuda.synchronize()
        beside = torch.cuda.Stream()
        with torch.cuda.stream(beside):
            calls[0]()
        beside.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        return graph.replay

    def learning(self) -> AbstractContextManager[None]:
        """Kernels may try their choices meanwhile, as they do while a tree warms up."""
        if self.device == "cpu":
            return nullcontext()
        from penstock.kernels.triton.launch.tuning import learning

        return learning(self.tuned)
