"""The same work on two trees, the second with further options of `LLM`: what an option costs or gains.

    scripts/benchmark options '{"max_num_batched_tokens": 256}'
    scripts/benchmark options '{"tensor_parallel_size": 2}' --both '{"num_threads": 2}'
    scripts/benchmark options '{"swap_space": 4}' --both \\
        '{"num_gpu_blocks_override": 18, "max_model_len": 544, "enable_prefix_caching": true}'

Tokens a second of one answer, of sixteen answers together, of sixteen prompts of 256 tokens together, of a prompt of
512, and of eight prompts of 512 that were all answered before, which pays where a cache or `swap_space` still has them.
"""

import json
from functools import partial
from itertools import count
from typing import Any

from penstock import LLM

from ..harness import Quantization, ShapeName, answered, compare, prompts, random_model, random_weights, seconds_of

# Requests, tokens in, tokens out; the rate counts what is computed most of.
WORK = {
    "answer, batch 1": (1, 32, 64), "answers, batch 16": (16, 32, 32), "16 prompts of 256": (16, 256, 1),
    "prompt of 512": (1, 512, 1),
}  # fmt: skip
AGAIN, LENGTH = 8, 512


def run(
    given: str, both: str = "{}", quantization: Quantization = "int8", shape: ShapeName = "0.6b", rounds: int = 3
) -> Any:
    common, further = json.loads(both), json.loads(given)
    options, salts = random_weights(quantization, kv_cache_memory="1GiB", **common), count(step=1000)

    def rate(llm: LLM, requests: int, tokens_in: int, tokens_out: int) -> float:
        taken = answered(llm, prompts(requests, tokens_in, next(salts)), tokens_out)
        return requests * max(tokens_in, tokens_out) / taken

    def again(llm: LLM) -> float:
        asked = prompts(AGAIN, LENGTH, next(salts))
        for _ in range(2):
            taken = seconds_of(lambda: [answered(llm, [each], 1) for each in asked])
        return AGAIN * LENGTH / taken

    with random_model(shape) as folder, LLM(folder, **options) as plain, LLM(folder, **options | further) as other:
        trees = {"without": plain, given: other}
        works = {name: lambda llm, work=work: rate(llm, *work) for name, work in WORK.items()}
        works[f"{AGAIN} prompts of {LENGTH} again"] = again
        return {
            name: compare(name, {tree: partial(work, llm) for tree, llm in trees.items()}, rounds, "tokens/s")
            for name, work in works.items()
        }
