"""What the process tree costs: CPU time of all its processes per step and per token, with the torch-free worker.

    python scripts/bench_overhead.py [--rows 1 16 256] [--tokens 400] [--requests 10000]

Prints CPU milliseconds a step (user and system time of front end, engine, detokenizer and worker, each shown), the
rate of many short requests through `generate`, and resident memory before and after.
"""

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from bench_harness import machine, median
from bench_models import SHAPES, write_config

from penstock import LLM, SamplingParams


def processes(llm: LLM) -> dict[str, psutil.Process]:
    children = {child.role: psutil.Process(child.popen.pid) for child in llm._session.transport.tree.children}
    return {"front end": psutil.Process(), **children}


def cpu_seconds(llm: LLM) -> dict[str, float]:
    """By the scheduler's own nanoseconds: a process's usual times come in ticks of 10 ms."""
    return {role: on_cpu(process.pid) for role, process in processes(llm).items()}


def on_cpu(pid: int) -> float:
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def resident(llm: LLM) -> dict[str, int]:
    return {role: process.memory_info().rss for role, process in processes(llm).items()}


def cost_of_steps(llm: LLM, rows: int, tokens: int, params: SamplingParams) -> dict[str, float]:
    """CPU milliseconds a step, by process, of `rows` requests decoded together."""
    prompts = [[row % 200 + 1, 2, 3, 4] for row in range(rows)]
    steps, before, start = llm.stats().steps, cpu_seconds(llm), time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    seconds, after = time.perf_counter() - start, cpu_seconds(llm)
    steps = llm.stats().steps - steps
    cost = {role: (after[role] - before[role]) * 1e3 / steps for role in before}
    return {**cost, "all": sum(cost.values()), "wall": seconds * 1e3 / steps}


def rate_of_short_requests(llm: LLM, count: int) -> float:
    prompts = [[(number + place) % 200 + 1 for place in range(16)] for number in range(count)]
    start = time.perf_counter()
    outputs = llm.generate(prompts, SamplingParams(max_tokens=1, ignore_eos=True), use_tqdm=False)
    assert all(output.error_code == 200 for output in outputs)
    return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(json.dumps(machine(), indent=1))
    with TemporaryDirectory() as folder:
        write_config(Path(folder), SHAPES["small"])
        options = {"load_format": "stand-in", "max_num_seqs": max(arguments.rows), "num_gpu_blocks_override": 8192}
        with LLM(folder, max_model_len=2048, quiet=True, **options) as llm:
            report(llm, arguments)


def report(llm: LLM, arguments: argparse.Namespace) -> None:
    params = SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=True)
    cost_of_steps(llm, 4, 50, params)
    print(f"\n{'rows':>5} {'CPU ms/step':>12} {'us/token':>9} {'wall ms/step':>13}   by process")
    for rows in arguments.rows:
        rounds = [cost_of_steps(llm, rows, arguments.tokens, params) for _ in range(arguments.rounds)]
        middle = {name: median([one[name] for one in rounds]) for name in rounds[0]}
        parts = ", ".join(f"{name} {value:.3f}" for name, value in middle.items() if name not in ("all", "wall"))
        total = middle["all"]
        print(f"{rows:>5} {total:>12.3f} {total * 1e3 / rows:>9.1f} {middle['wall']:>13.3f}   {parts}")
    rate_of_short_requests(llm, arguments.requests)
    before = resident(llm)
    rates = [rate_of_short_requests(llm, arguments.requests) for _ in range(arguments.rounds)]
    after = resident(llm)
    print(f"\n{arguments.requests:,} requests of 16 tokens in, 1 out: {median(rates):,.0f} a second")
    grown = ", ".join(f"{role} {(after[role] - before[role]) / 2**20:+.1f} MiB" for role in before)
    print(f"resident memory over {arguments.rounds} such batches: {grown}")


if __name__ == "__main__":
    main()
