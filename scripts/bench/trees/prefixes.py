"""A long prompt's first token: computed, and from the disk after a restart; and what writing there costs other work.

    scripts/benchmark prefixes
    scripts/benchmark prefixes --rounds 5 --tokens 2000

The first token counts from the request's arrival. "from memory" is a start that finds the files in the system's page
cache; for "from the disk" they are dropped from it before. The rate is that of requests whose prefixes are new each
time, in two trees in turns; the one that writes goes on with that while the other works.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from penstock import LLM

from ..harness import (
    Quantization,
    ShapeName,
    answered,
    compare,
    prompts,
    random_model,
    random_weights,
    ratios,
    table,
)

REQUESTS, TOKENS_IN, TOKENS_OUT = 32, 256, 64


def run(
    tokens: int = 8000, quantization: Quantization = "int8", shape: ShapeName = "0.6b", rounds: int = 3
) -> dict[str, Any]:
    options = random_weights(quantization, enable_prefix_caching=True, max_model_len=tokens + 64)
    with random_model(shape, max_position_embeddings=tokens + 64) as folder:
        kept = options | {"prefix_cache_dir": folder / "kept"}
        [prompt] = prompts(1, tokens)
        with LLM(folder, **kept) as llm:  # leaves its files
            answered(llm, [prompt], 1)
            written_by(llm)
        ways: dict[str, Callable[[], float]] = {
            "computed": lambda: first_token(folder, options, prompt),
            "from memory": lambda: first_token(folder, kept, prompt),
            "from the disk": lambda: drop(folder / "kept") or first_token(folder, kept, prompt),
        }
        firsts = {name: [way() for _ in range(rounds)] for name, way in ways.items()}
        print(f"\nfirst token of {tokens:,}\n{table(firsts, 'computed', 's')}", flush=True)
        sooner = {name: 1 / ratio for name, ratio in ratios(firsts, "computed").items()}
        print(", ".join(f"{name}: {times:.1f} times sooner" for name, times in sooner.items()), flush=True)
        return {"first token": firsts, "sooner": sooner, "rate": rates(folder, options, rounds)}


def first_token(folder: Path, options: dict[str, Any], prompt: list[int]) -> float:
    """Seconds to the first token in a fresh tree, which has computed something else before."""
    with LLM(folder, **options) as llm:
        answered(llm, prompts(1, 64, salt=7), 2)
        return answered(llm, [prompt], 1)


def rates(folder: Path, options: dict[str, Any], rounds: int) -> Any:
    salts = count(step=5000)

    def rate(llm: LLM) -> float:
        asked = prompts(REQUESTS, TOKENS_IN, next(salts))
        return REQUESTS * TOKENS_OUT / answered(llm, asked, TOKENS_OUT)

    writing = options | {"prefix_cache_dir": folder / "others"}
    with LLM(folder, **options) as plain, LLM(folder, **writing) as other:
        trees = {"without": partial(rate, plain), "writing": partial(rate, other)}
        title = f"{REQUESTS} requests of {TOKENS_IN} tokens, answered with {TOKENS_OUT}"
        found = compare(title, trees, rounds, "tokens/s")
        print(f"blocks written: {other.stats().stored_blocks:,}", flush=True)
        return found


def written_by(llm: LLM) -> None:
    """Wait until the tree has written all that it holds for that."""
    while not llm.stats().stored_blocks or llm.stats().free_blocks < llm.stats().blocks:
        time.sleep(0.1)


def drop(folder: Path) -> None:
    """Drop the files from the page cache."""
    for path in folder.glob("*/*.kv"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
