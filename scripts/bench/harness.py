"""Shared by scenarios: a model of random weights, requests to it, alternated rounds, medians, ratios and tables."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from penstock import LLM, SamplingParams

from .models import SHAPES, write_config

Quantization = Literal["int8", "int4", "none"]
ShapeName = Literal["8b", "4b", "0.6b", "small"]
Rounds = dict[str, list[float]]


# --- models and requests ----------------------------------------------------------------------------------------------


@contextmanager
def random_model(shape: str, **config: Any) -> Iterator[Path]:
    """A folder without weights, for `load_format="dummy"`: they are made up while the model loads."""
    with TemporaryDirectory() as folder:
        write_config(Path(folder), {**SHAPES[shape], "dtype": "bfloat16", **config})
        yield Path(folder)


def random_weights(quantization: str = "none", **options: Any) -> dict[str, Any]:
    """Options of an `LLM` of random weights in which no prompt finds the prefix of another, and nothing is drafted:
    such weights repeat themselves as no model does."""
    form = None if quantization == "none" else quantization
    always = {"load_format": "dummy", "enable_prefix_caching": False, "speculative_config": False, "quiet": True}
    return always | {"quantization": form, "max_model_len": 1024} | options


def prompts(count: int, length: int, salt: int = 0) -> list[list[int]]:
    """Token ids; another salt gives others."""
    return [[(salt + 31 * row + number) % 4000 + 10 for number in range(length)] for row in range(count)]


def greedy(tokens: int, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, **more)


def seconds_of(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def answered(llm: LLM, asked: Sequence[Any], tokens: int) -> float:
    """Seconds until all are answered with so many tokens each."""
    start = time.perf_counter()
    outputs = llm.generate(asked, greedy(tokens), use_tqdm=False)
    seconds = time.perf_counter() - start
    if wrong := [each for each in outputs if len(each.outputs.token_ids) != tokens]:
        raise RuntimeError(wrong[0].error_msg)
    return seconds


# --- comparison -------------------------------------------------------------------------------------------------------


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def alternated(variants: Mapping[str, Callable[[], float]], rounds: int) -> Rounds:
    """Run all variants in each round; the order turns, so that none always follows the same other."""
    results: Rounds = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(variants[name]())
    return results


def ratios(results: Rounds, base: str) -> dict[str, float]:
    """Median over the rounds of each variant's figure by the base's in the same round."""
    return {
        name: median(one / other for one, other in zip(figures, results[base], strict=True))
        for name, figures in results.items()
        if name != base
    }


def table(results: Rounds, base: str, unit: str) -> str:
    """One line a variant: median, least, most, and the ratio to the base."""
    compared = ratios(results, base)
    width = max(map(len, results))
    return "\n".join(
        f"{name:<{width}}  {median(figures):>10.3f} {unit} (min {min(figures):.3f}, max {max(figures):.3f})"
        + (f"  {compared[name]:.3f} x {base}" if name in compared else "")
        for name, figures in results.items()
    )


def compare(title: str, variants: Mapping[str, Callable[[], float]], rounds: int, unit: str) -> Rounds:
    """Run all variants in turns after a round that warms up, and print their table; the first one is the base."""
    alternated(variants, 1)
    results = alternated(variants, rounds)
    print(f"\n{title}\n{table(results, next(iter(variants)), unit)}", flush=True)
    return results
