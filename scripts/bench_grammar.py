"""What a schema on every request costs: throughput at batch 16, and time to the first token of a schema never seen.

    python scripts/bench_grammar.py [--rounds 5] [--quantization int8] [--small]

Random weights of the 0.6B shape with a byte-level vocabulary of its size. Throughput: 16 requests with one schema, then
the same 16 prompts with as many free tokens each, alternated. First token: one request at a time with a prompt of 128
tokens, with a schema of its own and without, alternated. Prints every round, the medians, and the ratio of medians.
"""

import argparse
import json
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench_harness import machine, median
from bench_models import SHAPES, write_config
from large_tokenizer import write_large_tokenizer

from penstock import LLM, SamplingParams

BATCH, PROMPT = 16, 128


def order_schema(number: int = 0) -> dict[str, Any]:
    """What an order may look like; every number gives another schema."""
    line = {
        "type": "object",
        "properties": {
            f"article_{number}": {"type": "string", "minLength": 4, "maxLength": 24},
            "quantity": {"type": "integer", "minimum": 1, "maximum": 500},
            "colour": {"enum": ["red", "green", "blue", None]},
        },
        "required": [f"article_{number}", "quantity", "colour"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "customer_name": {"type": "string", "minLength": 8, "maxLength": 40},
            "delivery_date": {"type": "string", "format": "date"},
            "order_lines": {"type": "array", "items": line, "minItems": 2, "maxItems": 4},
            "is_paid": {"type": "boolean"},
        },
        "required": ["customer_name", "delivery_date", "order_lines", "is_paid"],
        "additionalProperties": False,
    }


def throughput(llm: LLM, vocabulary: int, rounds: int) -> None:
    shaped_rates, free_rates = [], []
    for number in range(rounds + 1):
        prompts = random_prompts(number, vocabulary)
        shaped = [SamplingParams(temperature=1, max_tokens=300, seed=number, guided_json=order_schema())] * BATCH
        rate, counts = measured(llm, prompts, shaped)
        free = [SamplingParams(temperature=1, max_tokens=count, seed=number, ignore_eos=True) for count in counts]
        free_rate, _ = measured(llm, prompts, free)
        if number:  # the first round compiles, and touches memory
            shaped_rates.append(rate)
            free_rates.append(free_rate)
            print(f"  round {number}: {sum(counts)} tokens, {rate:.1f} with, {free_rate:.1f} without", flush=True)
    ratio = median(shaped_rates) / median(free_rates)
    print(f"output tokens/s at batch {BATCH}: {median(shaped_rates):.1f} with a schema, "
          f"{median(free_rates):.1f} without: {ratio:.3f} x")  # fmt: skip


def measured(llm: LLM, prompts: list[list[int]], params: list[SamplingParams]) -> tuple[float, list[int]]:
    start = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - start
    counts = [len(output.outputs.token_ids) for output in outputs]
    return sum(counts) / seconds, counts


def first_token(llm: LLM, vocabulary: int, rounds: int) -> None:
    shaped_times, free_times = [], []
    for number in range(4 * rounds):
        one, other = random_prompts(1000 + number, vocabulary)[:2]
        shaped = SamplingParams(temperature=1, max_tokens=1, seed=0, guided_json=order_schema(1 + number))
        shaped_times.append(time_to_first_token(llm, one, shaped))
        free_times.append(time_to_first_token(llm, other, SamplingParams(temperature=1, max_tokens=1, seed=0)))
    ratio = median(shaped_times) / median(free_times)
    print(f"time to first token: {1e3 * median(shaped_times):.1f} ms with an unseen schema, "
          f"{1e3 * median(free_times):.1f} ms without: {ratio:.3f} x")  # fmt: skip


def time_to_first_token(llm: LLM, prompt: list[int], params: SamplingParams) -> float:
    start = time.perf_counter()
    llm.generate([prompt], params, use_tqdm=False)
    return time.perf_counter() - start


def random_prompts(seed: int, vocabulary: int) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(BATCH)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quantization", default=None)
    parser.add_argument("--small", action="store_true", help="a small shape, to try the script")
    arguments = parser.parse_args()
    print(json.dumps(machine(), indent=1))
    shape = SHAPES["small" if arguments.small else "0.6b"]
    vocabulary = shape["vocab_size"]
    with TemporaryDirectory() as folder:
        write_config(Path(folder), {**shape, "dtype": "bfloat16", "eos_token_id": vocabulary - 1})
        write_large_tokenizer(Path(folder), vocabulary)
        options = {"load_format": "dummy", "max_model_len": 1024, "quantization": arguments.quantization}
        with LLM(folder, **options, max_num_seqs=BATCH, quiet=True) as llm:
            throughput(llm, vocabulary, arguments.rounds)
            first_token(llm, vocabulary, arguments.rounds)


if __name__ == "__main__":
    main()
