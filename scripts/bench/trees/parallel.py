"""N ranks of one thread against one rank of N threads: what splitting a model over processes costs on one machine.

Tokens a second of one request's answer, of sixteen together, and of prompts of 512 tokens.
"""

from functools import partial
from itertools import count
from typing import Any

from penstock import LLM

from ..harness import Quantization, ShapeName, answered, compare, prompts, random_model, random_weights

# Requests, tokens in, tokens out; the rate counts what is computed most of.
SCENARIOS = {"answer, batch 1": (1, 32, 64), "answers, batch 16": (16, 32, 32), "prompt of 512": (1, 512, 1)}


def run(ranks: int = 2, quantization: Quantization = "int8", shape: ShapeName = "0.6b", rounds: int = 3) -> Any:
    options = random_weights(quantization, num_threads=ranks, kv_cache_memory="1GiB")
    salts = count(step=1000)

    def rate(llm: LLM, requests: int, tokens_in: int, tokens_out: int) -> float:
        taken = answered(llm, prompts(requests, tokens_in, next(salts)), tokens_out)
        return requests * max(tokens_in, tokens_out) / taken

    with (
        random_model(shape) as folder,
        LLM(folder, **options) as one,
        LLM(folder, tensor_parallel_size=ranks, **options) as many,
    ):
        trees = {f"1 rank, {ranks} threads": one, f"{ranks} ranks, 1 thread each": many}
        return {
            name: compare(name, {tree: partial(rate, llm, *work) for tree, llm in trees.items()}, rounds, "tokens/s")
            for name, work in SCENARIOS.items()
        }
