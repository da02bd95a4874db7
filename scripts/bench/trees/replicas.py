"""Two trees of one core against one tree of two threads, and what the choice among trees costs.

The same requests in turns. With `shared` their first tokens are the same, which each tree that gets some computes once.
"""

import itertools
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from penstock import LLM
from penstock.frontend.replicas.choice import Choice
from penstock.frontend.replicas.prefix_keys import key_ends, prefix_keys
from penstock.protocol.messages import Prompt
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column

from ..harness import Quantization, Rounds, ShapeName, answered, compare, median, prompts, random_model, random_weights

_BLOCK, _CHOICES = 32, 400


def run(
    requests: tuple[int, ...] = (16, 32), tokens_in: int = 64, tokens_out: int = 64, shared: int = 0,
    quantization: Quantization = "int8", shape: ShapeName = "0.6b", threads: int = 2, trees: int = 2, rounds: int = 3,
) -> Any:  # fmt: skip
    found: dict[str, Rounds] = {}
    options = random_weights(quantization, num_threads=threads, enable_prefix_caching=shared > 0)
    with (
        random_model(shape) as folder,
        LLM(folder, **options) as one,
        LLM(folder, data_parallel_size=trees, **options) as several,
    ):
        for count in requests:
            name = f"{count} requests of {shared + tokens_in} in, {tokens_out} out"

            asked = (_asked(count, tokens_in, shared, salt) for salt in itertools.count(1))
            ways = {
                f"1 tree, {threads} threads": partial(_speed, one, asked, tokens_out),
                f"{trees} trees": partial(_speed, several, asked, tokens_out),
            }
            found[name] = compare(name, ways, rounds, "tokens/s")
    return found | {"choice": choices()}


def _asked(count: int, tokens_in: int, shared: int, salt: int) -> list[list[int]]:
    """Prompts that share nothing with those of another round."""
    [head] = prompts(1, shared, 1009 * salt)
    return [head + own for own in prompts(count, tokens_in, 2003 * salt)]


def _speed(llm: LLM, asked: Iterator[list[list[int]]], tokens_out: int) -> float:
    each = next(asked)
    return len(each) * tokens_out / answered(llm, each, tokens_out)


def choices() -> dict[str, float]:
    """Microseconds of a choice, keys included, by the length of the prompt, half of which others share."""
    found = {}
    for count in (2, 64):
        for length in (200, 1000, 4000, 16000):
            name = f"choice among {count} trees, prompt of {length:,}"
            found[name] = median(_choices(count, length)) * 1e6
            print(f"{name}: {found[name]:.1f} us")
    return found


def _choices(count: int, length: int) -> list[float]:
    choice, ends, works, taken = Choice(count), key_ends(_BLOCK, 1 << 17), [], []
    for tree in range(count):
        choice.open(tree, 200_000)
    for number, own in enumerate(prompts(_CHOICES, length // 2, 77)):
        shared = prompts(1, length // 2, 1000 * (number % 40))[0]
        prompt = Prompt(number, column(shared + own), SamplingParams(), 0, 0.0)
        start = time.perf_counter()
        works.append(choice.give(prefix_keys(prompt, ends), ends, length, 128))
        taken.append(time.perf_counter() - start)
        if len(works) > 16 * count and (done := works.pop(0)) is not None:
            choice.end(done, 100)
    return taken
