"""How many tokens a step should have: prefill speed, and how long a decoding neighbour waits, by token budget.

    python scripts/bench_budget.py [--budgets 256 512 1024 2048] [--rounds 3]

One tree per budget on a random-weight Qwen3-0.6B shape, run in turns: 16 prompts of 256 tokens with one output token
each (prompt tokens per second), while one long answer streams (its longest pause between two tokens).
"""

import argparse
import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_harness import machine, median
from bench_models import SHAPES, write_config

from penstock import LLM, SamplingParams

PROMPT_TOKENS, NUM_PROMPTS = 256, 16


def pauses(llm: LLM, until: threading.Event, found: list[float]) -> None:
    """Times between the tokens of one streamed answer."""
    last = time.perf_counter()
    for _ in llm.stream([7, 8, 9], SamplingParams(temperature=0, max_tokens=3000, ignore_eos=True)):
        now = time.perf_counter()
        found.append(now - last)
        last = now
        if until.is_set():
            return


def measure(llm: LLM, salt: int) -> tuple[float, float]:
    """Prompt tokens per second, and the streaming neighbour's longest pause in seconds."""
    prompts = [[(salt + 31 * row + place) % 4000 + 10 for place in range(PROMPT_TOKENS)] for row in range(NUM_PROMPTS)]
    is_over, waits = threading.Event(), []
    neighbour = threading.Thread(target=pauses, args=(llm, is_over, waits))
    neighbour.start()
    while len(waits) < 3:
        time.sleep(0.01)
    del waits[:]
    start = time.perf_counter()
    llm.generate(prompts, SamplingParams(max_tokens=1, ignore_eos=True), use_tqdm=False)
    seconds = time.perf_counter() - start
    is_over.set()
    neighbour.join()
    return PROMPT_TOKENS * NUM_PROMPTS / seconds, max(waits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budgets", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(json.dumps(machine(), indent=1))
    options = {"load_format": "dummy", "dtype": "bfloat16", "max_model_len": 3200, "kv_cache_memory": "1GiB"}
    found: dict[int, list[tuple[float, float]]] = {budget: [] for budget in arguments.budgets}
    with TemporaryDirectory() as folder, ExitStack() as trees:
        write_config(Path(folder), {**SHAPES["0.6b"], "dtype": "bfloat16"})
        llms = {
            budget: trees.enter_context(LLM(folder, max_num_batched_tokens=budget, quiet=True, **options))
            for budget in arguments.budgets
        }
        for number in range(arguments.rounds):
            for budget, llm in llms.items():
                found[budget].append(measure(llm, salt=1000 * number))
    for budget, measured in found.items():
        speed, pause = (median([one[which] for one in measured]) for which in (0, 1))
        print(f"{budget:>6} tokens a step: {speed:,.0f} prompt tokens/s, longest pause of a neighbour {pause:.2f} s")


if __name__ == "__main__":
    main()
