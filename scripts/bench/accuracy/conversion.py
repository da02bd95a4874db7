"""The memory that converting a model of random weights and loading the result take at most.

Memory is proportional (PSS: a page that several processes map counts in parts), of the process that reads the weights,
files that it maps included, looked at every few milliseconds from outside. A bound stands beside it: the weights that
were made, the largest tensor of the original, and 0.1 GB for Python. Loaded is what was converted, twice: its
weights are packed the first time, and mapped as they were packed the second time.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from penstock import LLM, SamplingParams
from penstock.frontend.models.conversion import convert_model

from ..harness import ShapeName
from ..models import tensor_shapes, write_checkpoint

_EVERY = 0.003  # seconds between two looks
_BASE = 100_000_000  # bytes that Python may take
_OPTIONS = {"max_model_len": 128, "num_gpu_blocks_override": 8, "quiet": True}


class Peak:
    """The most memory that a child of this process took whose command line names `module`."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.nbytes = 0
        self._is_over = threading.Event()

    def look(self) -> None:
        own = psutil.Process()
        while not self._is_over.wait(_EVERY):
            for child in own.children():
                try:
                    if self.module in child.cmdline():
                        self.nbytes = max(self.nbytes, proportional_bytes(child.pid))
                except (psutil.Error, OSError):
                    continue

    def end(self) -> None:
        self._is_over.set()


def proportional_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])


@contextmanager
def peak_of(module: str) -> Iterator[Peak]:
    peak = Peak(module)
    thread = threading.Thread(target=peak.look)
    thread.start()
    try:
        yield peak
    finally:
        peak.end()
        thread.join()


def run(shape: ShapeName = "0.6b", quantization: tuple[str, ...] = ("int8", "int4", "none")) -> None:
    print(f"{shape}; GB of memory at most, and the bound\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PENSTOCK_CACHE"] = str(folder / "cache")
        source = folder / "original"
        write_checkpoint(source, shape)
        largest = largest_tensor(json.loads((source / "config.json").read_text()))
        for form in quantization:
            measure(source, folder / "converted", None if form == "none" else form, largest)


def largest_tensor(config: dict[str, int]) -> int:
    """Bytes in bfloat16."""
    sizes = [shape for _, shape in tensor_shapes(config)]
    return 2 * max(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in sizes)


def measure(source: Path, target: Path, quantization: str | None, largest: int) -> None:
    start = time.monotonic()
    with peak_of("penstock.worker.convert") as peak:
        made = convert_model(source, target, quantization=quantization)
    say(f"{quantization}: convert", peak, made.after + largest, time.monotonic() - start)
    for word in ("load", "load again"):
        say(f"{quantization}: {word}", *loaded(target, largest))
    for folder in (target, Path(os.environ["PENSTOCK_CACHE"])):
        shutil.rmtree(folder, ignore_errors=True)


def loaded(target: Path, largest: int) -> tuple[Peak, int, float]:
    start = time.monotonic()
    with peak_of("penstock.worker") as peak, LLM(target, **_OPTIONS) as llm:
        seconds = time.monotonic() - start
        weights = llm._session.plan.weight_bytes
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)
        wait(is_kept)
    return peak, weights + largest, seconds


def is_kept() -> bool:
    """Whether the weights have been written for the next start, which takes memory, too."""
    kept = Path(os.environ["PENSTOCK_CACHE"], "penstock", "weights")
    return any(path.is_file() and path.suffix != ".writing" and path.name[0] != "." for path in kept.glob("*"))


def wait(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_done() and time.monotonic() < end:
        time.sleep(0.05)


def say(what: str, peak: Peak, weights: int, seconds: float) -> None:
    bound = weights + _BASE
    verdict = "within" if peak.nbytes <= bound else "ABOVE"
    print(f"{what:32} {peak.nbytes / 1e9:5.2f} of {bound / 1e9:5.2f}  {verdict}  {seconds:5.1f} s", flush=True)
