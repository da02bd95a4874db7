"""A JSON schema on every request: throughput at batch 16, and the first token of a schema never seen.

A byte-level vocabulary of the shape's size. Throughput: 16 requests with one schema, then the same 16 prompts with as
many free tokens each. First token: one request at a time with a prompt of 128 tokens, with a schema of its own and
without.
"""

import random
from functools import partial
from itertools import count
from typing import Any

from penstock import LLM, SamplingParams

from ..harness import Quantization, ShapeName, compare, median, random_model, random_weights, seconds_of
from ..models import SHAPES, write_large_tokenizer

BATCH, PROMPT = 16, 128


def run(quantization: Quantization = "none", shape: ShapeName = "0.6b", rounds: int = 5) -> Any:
    vocabulary = SHAPES[shape]["vocab_size"]
    with random_model(shape, eos_token_id=vocabulary - 1) as folder:
        write_large_tokenizer(folder, vocabulary)
        with LLM(folder, **random_weights(quantization, max_num_seqs=BATCH)) as llm:
            return {"throughput": throughput(llm, vocabulary, rounds), "first": first_token(llm, vocabulary, rounds)}


def throughput(llm: LLM, vocabulary: int, rounds: int) -> Any:
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
    return {"with": shaped_rates, "without": free_rates}


def measured(llm: LLM, prompts: list[list[int]], params: list[SamplingParams]) -> tuple[float, list[int]]:
    counts: list[int] = []

    def generate() -> None:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        counts.extend(len(output.outputs.token_ids) for output in outputs)

    seconds = seconds_of(generate)
    return sum(counts) / seconds, counts


def first_token(llm: LLM, vocabulary: int, rounds: int) -> Any:
    numbers = count(1000)

    def milliseconds(is_shaped: bool) -> float:
        number = next(numbers)
        schema = {"guided_json": order_schema(number)} if is_shaped else {}
        params = SamplingParams(temperature=1, max_tokens=1, seed=0, **schema)
        return 1e3 * seconds_of(partial(llm.generate, random_prompts(number, vocabulary)[:1], params, use_tqdm=False))

    variants = {"without": partial(milliseconds, False), "an unseen schema": partial(milliseconds, True)}
    return compare("time to the first token", variants, 4 * rounds, "ms")


def random_prompts(seed: int, vocabulary: int) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(BATCH)]


def order_schema(number: int = 0) -> dict[str, Any]:
    """A schema of orders; every number gives another one."""
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
