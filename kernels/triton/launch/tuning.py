"""The fastest launch of a kernel, by architecture and shape: a default for each, better where measured.

A kernel has a short list of `LaunchConfig`s and a rule that gives the default. While `learning()` is on (a GPU warms
up), a shape that was not met yet is timed with every one, and the fastest is kept in a file that the next start reads.
Without a GPU, and for shapes met later, the default serves: no request ever waits for tuning. A launch must not change
any bit of the result where the kernel promises row-invariance; such a kernel has one `LaunchConfig`.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

import torch

from .. import is_interpreted
from .switches import KERNEL_TUNING

Key = tuple[int, ...]
_ROUNDS = 5  # timings of one choice, of which the best counts
_CACHE_BYTES = 256 << 20  # more than any GPU's cache holds
_CYCLES = 1_000_000  # that a GPU waits for a launch, half a millisecond: longer than a host takes to make one


@dataclass(frozen=True)
class LaunchConfig:
    """Sizes of blocks, as the kernel's constants of these names, and how the compiler is to spread a program."""

    blocks: tuple[tuple[str, int], ...]
    num_warps: int = 4
    num_stages: int = 2

    @classmethod
    def of(cls, num_warps: int = 4, num_stages: int = 2, **blocks: int) -> "LaunchConfig":
        return cls(tuple(sorted(blocks.items())), num_warps, num_stages)

    def __getitem__(self, name: str) -> int:
        return dict(self.blocks)[name]

    @property
    def options(self) -> dict[str, int]:
        """The keyword arguments of a launch other than the kernel's own."""
        return {**dict(self.blocks), "num_warps": self.num_warps, "num_stages": self.num_stages}


@cache
def architecture() -> int:
    """Compute capability × 10 of the GPU in use: 80 Ampere, 89 Ada, 90 Hopper, 100 Blackwell; 0 where there is none."""
    if is_interpreted() or not torch.cuda.is_available():
        return 0
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


@cache
def multiprocessors() -> int:
    """The number on the GPU in use. Without one, an H200's, so that tests split work as that card does."""
    return torch.cuda.get_device_properties().multi_processor_count if torch.cuda.is_available() else 132


class Tuning:
    """The launch configurations of one kernel, and the fastest for each shape that was measured."""

    def __init__(self, name: str, default: Callable[[int, Key], LaunchConfig], choices: list[LaunchConfig]) -> None:
        """`default(architecture, key)` serves what was not measured; `choices` are what is tried."""
        self.name = name
        self.default = default
        self.choices = choices
        self._known: dict[Key, LaunchConfig] = {}
        _ALL[name] = self

    def choice(self, key: Key, launch: Callable[[LaunchConfig], object] | None = None) -> LaunchConfig:
        """The choice for a shape. `launch` computes it with any choice, as often as timing needs, and harmlessly."""
        known = self._known.get(key)
        if known is None and _learns and launch is not None and architecture() and KERNEL_TUNING.is_on:
            known = self._known[key] = _fastest(self.choices, launch)
        return known or self.default(architecture(), key)

    def records(self) -> list[tuple[Key, int]]:
        """The measurements: each shape, and the index of its winner in the list of choices."""
        return [(key, self.choices.index(choice)) for key, choice in sorted(self._known.items())]

    def recall(self, records: list[tuple[list[int], int]]) -> None:
        self._known |= {tuple(key): self.choices[winner] for key, winner in records}


_ALL: dict[str, Tuning] = {}
_learns = False


@contextmanager
def learning(folder: Path) -> Iterator[None]:
    """Measure what is met meanwhile and not known from the file in this folder; write the file if anything is new."""
    global _learns
    path = folder / f"triton-{architecture()}-{_identity()}.json"
    with suppress(OSError, ValueError, LookupError, TypeError):
        for name, records in json.loads(path.read_text()).items():
            if name in _ALL:
                _ALL[name].recall(records)
    before = {name: tuning.records() for name, tuning in _ALL.items()}
    _learns = True
    try:
        yield
    finally:
        _learns = False
        after = {name: tuning.records() for name, tuning in _ALL.items()}
        if after != before:
            _write(path, after)


def _write(path: Path, records: dict[str, list[tuple[Key, int]]]) -> None:
    """A file that can't be written costs the next start some seconds, and nothing else."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(records))
        draft.replace(path)


def _identity() -> str:
    """A digest of everything besides the architecture that affects timings."""
    import triton

    name = "".join(letter for letter in torch.cuda.get_device_name() if letter.isalnum())
    lists = repr([(tuning.name, tuning.choices) for tuning in _ALL.values()])
    return f"{name}-{triton.__version__}-{blake2b(lists.encode(), digest_size=6).hexdigest()}"


def _fastest(choices: list[LaunchConfig], launch: Callable[[LaunchConfig], object]) -> LaunchConfig:
    timed = {choice: _milliseconds(choice, launch) for choice in compiled_together(choices, launch)}
    return min(timed, key=timed.__getitem__)


def compiled_together(choices: list[LaunchConfig], launch: Callable[[LaunchConfig], object]) -> list[LaunchConfig]:
    """Launch each once, in threads, since a compiler takes half a second; gives those that this GPU can run."""
    # A thread's own stream would be another one: kernels that share counters must run one after another.
    stream = torch.cuda.current_stream() if torch.cuda.is_available() else None

    def can_run(choice: LaunchConfig) -> bool:
        try:
            with torch.cuda.stream(stream), torch.inference_mode():
                launch(choice)
        except Exception as error:
            if type(error).__name__ not in ("OutOfResources", "PTXASError"):
                raise
            return False
        return True

    with ThreadPoolExecutor(min(len(choices), len(os.sched_getaffinity(0)))) as threads:
        return [choice for choice, can in zip(choices, threads.map(can_run, choices), strict=True) if can]


def _milliseconds(choice: LaunchConfig, launch: Callable[[LaunchConfig], object]) -> float:
    """The shortest time of some launches."""
    best, elsewhere = float("inf"), torch.empty(_CACHE_BYTES, dtype=torch.uint8, device="cuda")
    for _ in range(_ROUNDS):
        # Sweeps the cache, as a step's other weights do. Then the GPU waits until the launch is in its queue, so that
        # its time is measured and not the host's.
        elsewhere.zero_()
        torch.cuda._sleep(_CYCLES)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch(choice)
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
    return best
