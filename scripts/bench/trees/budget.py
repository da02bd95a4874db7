"""Prefill speed, and how long a decoding neighbour waits, by how many tokens a step may have.

A tree for each budget, in turns: 16 prompts of 256 tokens with one output token each (prompt tokens per second), while
one long answer streams (its longest pause between two tokens).
"""

import threading
import time
from contextlib import ExitStack
from typing import Any

from penstock import LLM

from ..harness import ShapeName, answered, greedy, median, prompts, random_model, random_weights

PROMPT_TOKENS, NUM_PROMPTS = 256, 16


def run(budgets: tuple[int, ...] = (256, 512, 1024, 2048), shape: ShapeName = "0.6b", rounds: int = 3) -> Any:
    options = random_weights(max_model_len=3200, kv_cache_memory="1GiB", enable_prefix_caching=True)
    found: dict[int, list[tuple[float, float]]] = {budget: [] for budget in budgets}
    with random_model(shape) as folder, ExitStack() as trees:
        llms = {
            budget: trees.enter_context(LLM(folder, max_num_batched_tokens=budget, **options)) for budget in budgets
        }
        for number in range(rounds):
            for budget, llm in llms.items():
                found[budget].append(measured(llm, salt=1000 * number))
    for budget, each in found.items():
        speed, pause = (median(figures) for figures in zip(*each, strict=True))
        print(f"{budget:>6} tokens a step: {speed:,.0f} prompt tokens/s, longest pause of a neighbour {pause:.2f} s")
    return found


def measured(llm: LLM, salt: int) -> tuple[float, float]:
    """Prompt tokens per second, and the streaming neighbour's longest pause in seconds."""
    is_over, waits = threading.Event(), []
    neighbour = threading.Thread(target=stream, args=(llm, is_over, waits))
    neighbour.start()
    while len(waits) < 3:
        time.sleep(0.01)
    del waits[:]
    seconds = answered(llm, prompts(NUM_PROMPTS, PROMPT_TOKENS, salt), 1)
    is_over.set()
    neighbour.join()
    return PROMPT_TOKENS * NUM_PROMPTS / seconds, max(waits)


def stream(llm: LLM, until: threading.Event, waits: list[float]) -> None:
    """Note the times between the tokens of one streamed answer."""
    last = time.perf_counter()
    for _ in llm.stream([7, 8, 9], greedy(3000)):
        now = time.perf_counter()
        waits.append(now - last)
        last = now
        if until.is_set():
            return
