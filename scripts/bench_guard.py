"""What got slower: this checkout against a commit, figure by figure, in pairs on this machine.

    python scripts/bench_guard.py main~10                    # thirteen figures, five pairs of each
    python scripts/bench_guard.py v0.1 --pairs 9 --groups int8 bf16
    python scripts/bench_guard.py main --at FOLDER           # the commit is FOLDER/penstock

Run it by hand before a change to kernels, worker or engine is merged. The commit is unpacked and its kernels compiled
in a temporary folder. A pair is two processes, one after the other, each with a tree of its own; the two sides take
turns at being first. What is printed is each side's median and the median of the pairs' ratios, turned so that more is
better; a figure below 0.97 is marked, and makes the exit status 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from bench_harness import ROOT, machine, median
from bench_models import SHAPES, write_config

Figures = dict[str, float]
WORST = 0.97
# Less is better of these.
COSTS = ("start to the first token, s", "1 row, CPU ms a step", "256 rows, CPU ms a step")


# --- one side, in a process of its own --------------------------------------------------------------------------------


def start() -> Figures:
    begin = time.perf_counter()
    from penstock import LLM, SamplingParams

    with LLM("pocket", quiet=True) as llm:
        llm.generate(["2 + 3"], SamplingParams(max_tokens=1), use_tqdm=False)
        return {COSTS[0]: time.perf_counter() - begin}


def steps() -> Figures:
    """The tree's own work, with a worker that computes nothing."""
    from penstock import LLM, SamplingParams

    with TemporaryDirectory() as folder:
        write_config(Path(folder), SHAPES["small"])
        options = {"load_format": "stand-in", "max_num_seqs": 256, "num_gpu_blocks_override": 8192}
        with LLM(folder, max_model_len=2048, quiet=True, **options) as llm:

            def answered(requests: int, tokens: int) -> tuple[float, float]:
                """CPU and wall seconds."""
                params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
                cpu, begin = cpu_seconds(), time.perf_counter()
                llm.generate([[n % 200 + 1, 2, 3, 4] for n in range(requests)], params, use_tqdm=False)
                return cpu_seconds() - cpu, time.perf_counter() - begin

            answered(256, 20)
            one, many, short = answered(1, 1000), answered(256, 200), answered(5000, 1)
    return {COSTS[1]: one[0], COSTS[2]: many[0] * 1e3 / 200, "short requests a second": 5000 / short[1]}


def cpu_seconds() -> float:
    """Of this process and its children, by the scheduler's own nanoseconds."""
    own = psutil.Process()
    tasks = [task for process in (own, *own.children(True)) for task in Path(f"/proc/{process.pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def answers(precision: str) -> Figures:
    """A random-weight Qwen3-0.6B: tokens a second of an answer, of prompts, and of a batch."""
    from penstock import LLM, SamplingParams

    options = {"dtype": "bfloat16"} if precision == "bf16" else {"quantization": precision}
    with TemporaryDirectory() as folder:
        write_config(Path(folder), {**SHAPES["0.6b"], "dtype": "bfloat16"})
        options |= {"load_format": "dummy", "kv_cache_memory": "1GiB", "enable_prefix_caching": False}
        with LLM(folder, max_model_len=4096, quiet=True, **options) as llm:

            def rate(requests: int, tokens_in: int, tokens_out: int, counted: int) -> float:
                prompts = [[(n * 7 + i) % 5000 + 1 for i in range(tokens_in)] for n in range(requests)]
                params = SamplingParams(temperature=0, max_tokens=tokens_out, ignore_eos=True)
                begin = time.perf_counter()
                llm.generate(prompts, params, use_tqdm=False)
                return requests * counted / (time.perf_counter() - begin)

            rate(1, 64, 4, 1)
            return {
                f"{precision}: decode 1": rate(1, 32, 64, 64),
                f"{precision}: prefill 512": median([rate(1, 512, 1, 512) for _ in range(3)]),
                f"{precision}: 16 × (128, 32)": rate(16, 128, 32, 32),
            }


GROUPS: dict[str, Callable[[], Figures]] = {
    "start": start,
    "steps": steps,
    "int8": lambda: answers("int8"),
    "int4": lambda: answers("int4"),
    "bf16": lambda: answers("bf16"),
}


# --- both sides -------------------------------------------------------------------------------------------------------


def measured(group: str, package: Path) -> Figures:
    environment = {**os.environ, "PYTHONPATH": str(package)}
    words = [sys.executable, __file__, "--measure", group]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{group} on {package} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


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
    subprocess.run(words, env={**os.environ, "PYTHONPATH": str(package)}, check=True, capture_output=True)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commit", nargs="?", help="what to compare with")
    parser.add_argument("--at", type=Path, help="a folder in which `penstock` is that commit")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--measure", choices=list(GROUPS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(GROUPS[arguments.measure]()))
        return
    if arguments.commit is None:
        parser.error("name the commit to compare with")
    print(json.dumps(machine()), flush=True)
    with TemporaryDirectory() as folder:
        now = Path(folder, "now")
        now.mkdir()
        (now / "penstock").symlink_to(ROOT)
        before = arguments.at or unpack(arguments.commit, Path(folder, "before"))
        for package in (before, now):
            compile_kernels(package)
        print(f"\n| figure | {arguments.commit} | now | ratio |\n| --- | --- | --- | --- |", flush=True)
        ratios = []
        for group in arguments.groups:
            for line, ratio in report(list(pairs_of(group, before, now, arguments.pairs))):
                print(line, flush=True)
                ratios.append(ratio)
    sys.exit(min(ratios) < WORST)


if __name__ == "__main__":
    main()
