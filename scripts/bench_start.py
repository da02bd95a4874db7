"""How fast a tree starts and how quietly it waits, beside `import torch` in the same sitting.

    python scripts/bench_start.py MODEL [--rounds 5]

Times whole processes, alternated: `python -c "import penstock"`, `python -c "import torch"`, and a script from its
start to its first token on MODEL (a tiny one shows the tree's own share). Then the CPU use of an idle tree.
"""

import argparse
import json
import subprocess
import sys
import time

import psutil
from bench_harness import machine, median

from penstock import LLM

FIRST_TOKEN = """
from penstock import LLM, SamplingParams
llm = LLM({model!r}, max_model_len=512, quiet=True)
next(iter(llm.stream([1, 2, 3], SamplingParams(max_tokens=8, ignore_eos=True))))
import os; os._exit(0)
"""


def seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def idle_share(model: str, watched_seconds: float = 5.0) -> float:
    """Cores used by an idle tree, this process included."""
    with LLM(model, max_model_len=512, quiet=True) as llm:
        processes = [
            psutil.Process(),
            *(psutil.Process(child.popen.pid) for child in llm._session.transport.tree.children),
        ]
        time.sleep(3)  # KV memory is still touched in the background
        before = sum(sum(process.cpu_times()[:2]) for process in processes)
        time.sleep(watched_seconds)
        return (sum(sum(process.cpu_times()[:2]) for process in processes) - before) / watched_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(json.dumps(machine(), indent=1))
    codes = {
        "import penstock": "import penstock",
        "import torch": "import torch",
        "start to first token": FIRST_TOKEN.format(model=arguments.model),
    }
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(arguments.rounds):
        for name, code in codes.items():
            times[name].append(seconds(code))
    for name, taken in times.items():
        print(f"{name}: {median(taken):.3f} s (min {min(taken):.3f}, max {max(taken):.3f})")
    ratios = [a / b for a, b in zip(times["start to first token"], times["import torch"], strict=True)]
    print(f"start to first token / import torch: {median(ratios):.2f} x")
    print(f"an idle tree uses {idle_share(arguments.model):.2%} of a core")


if __name__ == "__main__":
    main()
