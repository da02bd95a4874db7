"""Compares this checkout's speed with a commit's, figure by figure, in pairs.

    scripts/benchmark guard main~10                    # twelve figures, five pairs of each
    scripts/benchmark guard v0.1 --pairs 9 --groups int8 bf16
    scripts/benchmark guard main --at FOLDER           # the commit is FOLDER/penstock

Run it by hand before a change to kernels, worker or engine is merged. The commit is unpacked and its kernels compiled
in a temporary folder. A pair is two processes, one after the other, each with a tree of its own; the two sides take
turns at being first. What is printed is each side's median and the median of the pairs' ratios, turned so that more is
better; a figure below 0.97 is marked, and makes the exit status 1.
"""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import psutil

from ..harness import answered, median, prompts, random_model
from ..machine import ROOT, on_cpu

Group = Literal["start", "steps", "int8", "int4", "bf16"]
Figures = dict[str, float]
WORST = 0.97
# Less is better of these.
COSTS = ("start to the first token, s", "1 row, CPU ms a step", "256 rows, CPU ms a step")
EVERY: tuple[Group, ...] = ("start", "steps", "int8", "int4", "bf16")


def run(commit: str, at: Path | None = None, pairs: int = 5, groups: tuple[Group, ...] = EVERY) -> None:
    with TemporaryDirectory() as folder:
        now = Path(folder, "now")
        now.mkdir()
        (now / "penstock").symlink_to(ROOT)
        before = at or unpack(commit, Path(folder, "before"))
        for package in (before, now):
            compile_kernels(package)
        print(f"\n| figure | {commit} | now | ratio |\n| --- | --- | --- | --- |", flush=True)
        ratios = []
        for group in groups:
            for line, ratio in report(list(pairs_of(group, before, now, pairs))):
                print(line, flush=True)
                ratios.append(ratio)
    sys.exit(min(ratios) < WORST)


# --- one side, in a process of its own --------------------------------------------------------------------------------

START = f"""
import json, time
begin = time.perf_counter()
from penstock import LLM, SamplingParams
with LLM("pocket", quiet=True) as llm:
    llm.generate(["2 + 3"], SamplingParams(max_tokens=1), use_tqdm=False)
    print(json.dumps({{{COSTS[0]!r}: time.perf_counter() - begin}}))
"""


def steps() -> Figures:
    """The tree's own work, with a worker that computes nothing."""
    from penstock import LLM

    options = {"load_format": "stand-in", "max_num_seqs": 256, "num_gpu_blocks_override": 8192}
    with random_model("small") as folder, LLM(folder, max_model_len=2048, quiet=True, **options) as llm:

        def took(requests: int, tokens: int) -> tuple[float, float]:
            """CPU and wall seconds."""
            before = cpu_seconds()
            wall = answered(llm, prompts(requests, 4), tokens)
            return cpu_seconds() - before, wall

        took(256, 20)
        one, many, short = took(1, 1000), took(256, 200), took(5000, 1)
    return {COSTS[1]: one[0], COSTS[2]: many[0] * 1e3 / 200, "short requests a second": 5000 / short[1]}


def cpu_seconds() -> float:
    """CPU seconds of this process and its children."""
    own = psutil.Process()
    return on_cpu(own.pid, *(child.pid for child in own.children(True)))


def answers(precision: str) -> Figures:
    """A random-weight Qwen3-0.6B: tokens a second of an answer, of prompts, and of a batch."""
    from penstock import LLM

    options = {"dtype": "bfloat16"} if precision == "bf16" else {"quantization": precision}
    options |= {"load_format": "dummy", "kv_cache_memory": "1GiB", "enable_prefix_caching": False}
    with random_model("0.6b") as folder, LLM(folder, max_model_len=4096, quiet=True, **options) as llm:

        def rate(requests: int, tokens_in: int, tokens_out: int, counted: int) -> float:
            return requests * counted / answered(llm, prompts(requests, tokens_in), tokens_out)

        rate(1, 64, 4, 1)
        return {
            f"{precision}: decode 1": rate(1, 32, 64, 64),
            f"{precision}: prefill 512": median([rate(1, 512, 1, 512) for _ in range(3)]),
            f"{precision}: 16 × (128, 32)": rate(16, 128, 32, 32),
        }


# --- both sides -------------------------------------------------------------------------------------------------------


def measured(group: str, package: Path) -> Figures:
    words = ["-c", START] if group == "start" else ["-m", __name__, group]
    done = subprocess.run([sys.executable, *words], env=environment(package), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{group} on {package} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def environment(package: Path) -> dict[str, str]:
    """The benchmarks are this checkout's on both sides."""
    return {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT / 'scripts'}"}


def unpack(commit: str, folder: Path) -> Path:
    """The commit as a package; returns what belongs on the path."""
    words = ["git", "-C", str(ROOT), "archive", commit]
    packed = subprocess.run(words, capture_output=True, check=False)
    if packed.returncode:
        raise SystemExit(f"{commit} can't be unpacked: {packed.stderr.decode().strip()}")
    tarfile.open(fileobj=BytesIO(packed.stdout)).extractall(folder / "penstock", filter="data")
    return folder


def compile_kernels(package: Path) -> None:
    words = [sys.executable, "-m", "penstock.kernels.cpu.build"]
    subprocess.run(words, env=environment(package), check=True, capture_output=True)


def pairs_of(group: str, before: Path, now: Path, pairs: int) -> Iterator[tuple[Figures, Figures]]:
    for number in range(pairs):
        sides = (before, now) if number % 2 == 0 else (now, before)
        found = {side: measured(group, side) for side in sides}
        yield found[before], found[now]


def report(pairs: list[tuple[Figures, Figures]]) -> Iterator[tuple[str, float]]:
    """A line a figure, and its ratio, which is above 1 where it got better."""
    for name in pairs[0][0]:
        before, now = ([figures[name] for figures in side] for side in zip(*pairs, strict=True))
        is_cost = name in COSTS
        ratio = median([(b / n if is_cost else n / b) for b, n in zip(before, now, strict=True)])
        mark = "  slower" if ratio < WORST else ""
        yield f"| {name} | {median(before):,.3g} | {median(now):,.3g} | {ratio:.3f}{mark} |", ratio


if __name__ == "__main__":
    print(json.dumps(steps() if sys.argv[1] == "steps" else answers(sys.argv[1])))
