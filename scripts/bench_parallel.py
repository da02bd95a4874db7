"""What splitting a model over processes costs on one machine: N ranks of one thread against one rank of N threads.

    python scripts/bench_parallel.py [--ranks 2] [--quantization int8] [--rounds 3]

Two trees on a random-weight Qwen3-0.6B shape, run in turns: tokens a second of one request's answer, of sixteen
together, and of prompts of 512 tokens.
"""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_harness import alternated, machine, table
from bench_models import SHAPES, write_config

from penstock import LLM, SamplingParams

# Requests, tokens in, tokens out; the rate counts what is computed most of.
SCENARIOS = {"answer, batch 1": (1, 32, 64), "answers, batch 16": (16, 32, 32), "prompt of 512": (1, 512, 1)}
_SALTS = count()


def rate(llm: LLM, requests: int, tokens_in: int, tokens_out: int) -> float:
    salt = 1000 * next(_SALTS)  # no prompt twice, so that no prefix is found
    prompts = [[(salt + 31 * row + place) % 9000 + 10 for place in range(tokens_in)] for row in range(requests)]
    params = SamplingParams(temperature=0, max_tokens=tokens_out, ignore_eos=True)
    start = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    return requests * max(tokens_in, tokens_out) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--quantization", default="int8", help="of the weights, or none")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    options = {
        "load_format": "dummy",
        "max_model_len": 1024,
        "kv_cache_memory": "1GiB",
        "num_threads": arguments.ranks,
        "quiet": True,
    }
    if arguments.quantization != "none":
        options["quantization"] = arguments.quantization
    one, many = f"1 rank, {arguments.ranks} threads", f"{arguments.ranks} ranks, 1 thread each"
    with TemporaryDirectory() as folder, ExitStack() as trees:
        write_config(Path(folder), {**SHAPES["0.6b"], "dtype": "bfloat16"})
        llms = {
            one: trees.enter_context(LLM(folder, **options)),
            many: trees.enter_context(LLM(folder, tensor_parallel_size=arguments.ranks, **options)),
        }
        for name, shape in SCENARIOS.items():
            variants: dict[str, Callable[[], float]] = {tree: partial(rate, llm, *shape) for tree, llm in llms.items()}
            for warm_up in variants.values():
                warm_up()
            print(f"\n{name}\n{table(alternated(variants, arguments.rounds), one, 'tokens/s')}", flush=True)


if __name__ == "__main__":
    main()
