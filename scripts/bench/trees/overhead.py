"""CPU time of all processes of a tree per step and per token, with a worker that computes nothing.

Prints CPU milliseconds a step (of front end, engine, detokenizer and worker, each shown), the rate of many short
requests through `generate`, and how resident memory grew over them.
"""

import os
from typing import Any

import psutil

from penstock import LLM

from ..harness import answered, median, prompts, random_model
from ..machine import on_cpu


def run(rows: tuple[int, ...] = (1, 16, 256), tokens: int = 1000, requests: int = 10_000, rounds: int = 3) -> Any:
    options = {"load_format": "stand-in", "max_num_seqs": max(rows), "num_gpu_blocks_override": 8192}
    found: dict[str, Any] = {}
    with random_model("small") as folder, LLM(folder, max_model_len=2048, quiet=True, **options) as llm:
        cost_of_steps(llm, 4, 50)
        print(f"\n{'rows':>5} {'CPU ms/step':>12} {'us/token':>9} {'wall ms/step':>13}   by process")
        for count in rows:
            each = [cost_of_steps(llm, count, tokens) for _ in range(rounds)]
            cost = found[f"{count} rows"] = {name: median(one[name] for one in each) for name in each[0]}
            parts = ", ".join(f"{name} {value:.3f}" for name, value in cost.items() if name not in ("all", "wall"))
            print(f"{count:>5} {cost['all']:>12.3f} {cost['all'] * 1e3 / count:>9.1f} {cost['wall']:>13.3f}   {parts}")
        found |= many_requests(llm, requests, rounds)
    return found


def processes(llm: LLM) -> dict[str, int]:
    return {"front end": os.getpid(), **{child.role: child.popen.pid for child in llm._session.transport.tree.children}}


def cost_of_steps(llm: LLM, rows: int, tokens: int) -> dict[str, float]:
    """CPU milliseconds a step, by process, of `rows` requests decoded together."""
    steps, before = llm.stats().steps, {role: on_cpu(pid) for role, pid in processes(llm).items()}
    seconds = answered(llm, prompts(rows, 4), tokens)
    steps = llm.stats().steps - steps
    cost = {role: (on_cpu(pid) - before[role]) * 1e3 / steps for role, pid in processes(llm).items()}
    return {**cost, "all": sum(cost.values()), "wall": seconds * 1e3 / steps}


def many_requests(llm: LLM, count: int, rounds: int) -> dict[str, Any]:
    """Short requests a second, and MiB that each process has grown by over all rounds."""
    asked = prompts(count, 16)
    answered(llm, asked, 1)
    before = resident(llm)
    rate = median([count / answered(llm, asked, 1) for _ in range(rounds)])
    grown = {role: memory - before[role] for role, memory in resident(llm).items()}
    print(f"\n{count:,} requests of 16 tokens in, 1 out: {rate:,.0f} a second")
    shown = ", ".join(f"{role} {more:+.1f} MiB" for role, more in grown.items())
    print(f"resident memory over {rounds} such batches: {shown}")
    return {"short requests a second": rate, "MiB grown": grown}


def resident(llm: LLM) -> dict[str, float]:
    return {role: psutil.Process(pid).memory_info().rss / 2**20 for role, pid in processes(llm).items()}
