"""What `swap_space` gains and costs: the same requests on two trees with too few KV blocks, one with it, in turns.

    python scripts/bench_swap.py [--rounds 3] [--shape 0.6b] [--quantization int8] [--prompts 8] [--tokens 512]

Random weights, and a pool that holds little more than one of the prompts. Three scenarios: prompts that nobody has seen
(what saving costs), the same again when all were evicted (what loading gains), and answers that outgrow the pool
together, so that some give way and come back. Prints each one's seconds and the ratio to the tree without.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench_harness import alternated, machine, table
from bench_models import SHAPES, write_config

from penstock import LLM, SamplingParams

ANSWERS, ANSWER_TOKENS = 6, 96  # of the last scenario
BLOCK = 32


class Side:
    """One tree, and how often it was asked."""

    def __init__(self, llm: LLM, num_prompts: int, num_tokens: int) -> None:
        self.llm = llm
        self.num_prompts, self.num_tokens = num_prompts, num_tokens
        self._salts = count()
        self._salt = 0

    def unseen(self) -> float:
        """Seconds for prompts that nobody has asked before, one after another."""
        self._salt = next(self._salts)
        return self.again()

    def again(self) -> float:
        """The same prompts once more; the pool has room for one."""
        start = perf_counter()
        for number in range(self.num_prompts):
            self._generate([self._prompt(number, self.num_tokens)], 1)
        return perf_counter() - start

    def outgrown(self) -> float:
        """Seconds for answers that fit the pool when they begin and outgrow it together."""
        self._salt = next(self._salts)
        start = perf_counter()
        self._generate([self._prompt(number, 48) for number in range(ANSWERS)], ANSWER_TOKENS)
        return perf_counter() - start

    def _prompt(self, number: int, length: int) -> list[int]:
        return [self._salt + 10, number + 10, *((31 * number + place) % 4000 + 10 for place in range(length - 2))]

    def _generate(self, prompts: list[list[int]], num_output: int) -> None:
        params = SamplingParams(temperature=0, max_tokens=num_output, ignore_eos=True)
        for output in self.llm.generate(prompts, params, use_tqdm=False):
            if len(output.outputs.token_ids) != num_output:
                raise RuntimeError(output.error_msg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", default="0.6b", choices=SHAPES)
    parser.add_argument("--quantization")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--swap-space", type=float, default=4.0)
    arguments = parser.parse_args()
    print(json.dumps(machine(), indent=1))
    options = {
        "load_format": "dummy",
        "quantization": arguments.quantization,
        "block_size": BLOCK,
        "max_model_len": arguments.tokens + BLOCK,
        "num_gpu_blocks_override": arguments.tokens // BLOCK + 2,
        "static_decode_blocks": 0,
        "quiet": True,
    }
    with TemporaryDirectory() as folder:
        write_config(Path(folder), {**SHAPES[arguments.shape], "dtype": "bfloat16"})
        with LLM(folder, **options) as plain, LLM(folder, swap_space=arguments.swap_space, **options) as swapping:
            sides = {
                "without": Side(plain, arguments.prompts, arguments.tokens),
                "with": Side(swapping, arguments.prompts, arguments.tokens),
            }
            report(sides, arguments.rounds)
            print(swapping.stats())


def report(sides: dict[str, Side], rounds: int) -> None:
    scenarios: dict[str, Callable[[Side], float]] = {
        "unseen prompts": Side.unseen,
        "the same again": Side.again,
        "answers that outgrow the pool": Side.outgrown,
    }
    for side in sides.values():  # warms up
        side.unseen()
    for name, scenario in scenarios.items():
        found = alternated({label: partial(scenario, side) for label, side in sides.items()}, rounds)
        print(f"{name}\n{table(found, 'without', 's')}")


if __name__ == "__main__":
    main()
