"""Real trees on random weights: from a start to the first token, one sequence, prompts, and many requests together.

Every round uses new prompts, so that no prefix is found. The second start finds what the first one has compiled and
tuned.
"""

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.models import SHAPES, write_config

from penstock import LLM, SamplingParams

from . import Figure, Setting
from .work import Work

Request = tuple[list[int], int]  # prompt, output tokens

_CONTEXT = 16_384  # of the models
_TOGETHER = 256  # sequences


def little(setting: Setting) -> Iterator[Figure]:
    """Of 0.6B: two starts, a step at batch 1, and the common test of 256 requests."""
    for which in ("first", "second"):
        start = time.perf_counter()
        with opened(setting, "0.6b", max_num_seqs=_TOGETHER) as (llm, work):
            ready = time.perf_counter() - start
            next(iter(llm.stream([11, 12, 13], SamplingParams(max_tokens=4, ignore_eos=True))))
            taken = time.perf_counter() - start
            yield Figure(f"start to first token, {which}", taken, "s", None, f"ready after {ready:.1f} s")
            if which == "second":
                yield _step(llm, work, setting, "0.6b")
                yield from _together(llm, setting)


def large(setting: Setting) -> Iterator[Figure]:
    """Of 8B: a step at batch 1, and prompts of 2k and 8k."""
    with opened(setting, "8b", max_num_seqs=16) as (llm, work):
        yield _step(llm, work, setting, "8b")
        for number, length in setting.sized(((8, 2048), (2, 8192)), ((2, 20),)):
            chance = random.Random(length)
            seconds = min(timed(llm, requests(chance, [(length, 1)] * number)) for _ in range(3))
            rate, operations = number * length / seconds, work.prompt_operations([length] * number)
            yield setting.of_matrix_rate(f"{number} prompts of {length:,}", rate, "tokens/s", operations / seconds)


def _step(llm: LLM, work: Work, setting: Setting, shape: str) -> Figure:
    """One step at batch 1, by the bytes that it reads."""
    length, answer = setting.sized((384, 256), (8, 3))
    chance, taken = random.Random(1), []
    timed(llm, requests(chance, [(length, answer)]))
    for _ in range(3):
        whole, first = (timed(llm, requests(chance, [(length, count)])) for count in (answer, 1))
        taken.append((whole - first) / (answer - 1))
    read = work.weight_bytes() + (length + answer / 2) * work.kv_bytes()
    return setting.of_bandwidth(f"a step of one sequence, {shape}", statistics.median(taken), read)


def _together(llm: LLM, setting: Setting) -> Iterator[Figure]:
    chance = random.Random(0)
    shortest, longest = setting.sized((100, 1024), (3, 6))
    lengths = [
        (chance.randint(shortest, longest), chance.randint(shortest, longest))
        for _ in range(setting.sized(_TOGETHER, 3))
    ]
    for which in ("cold", "warm"):
        seconds = timed(llm, requests(chance, lengths))
        rate = sum(answer for _, answer in lengths) / seconds
        yield Figure(f"{_TOGETHER} sequences together, {which}", rate, "tokens/s")


@contextmanager
def opened(setting: Setting, shape: str, **options: Any) -> Iterator[tuple[LLM, Work]]:
    shape = setting.sized(shape, "small")
    folder = setting.folder / shape
    if not folder.exists():
        folder.mkdir(parents=True)
        write_config(folder, {**SHAPES[shape], "dtype": "bfloat16", "max_position_embeddings": _CONTEXT})
    options = {"load_format": "dummy", "device": setting.device, "max_model_len": _CONTEXT, "quiet": True, **options}
    if setting.is_small:
        options |= {"max_model_len": 256, "max_num_seqs": 8}
    with LLM(folder, **options) as llm:
        yield llm, Work.of(SHAPES[shape])


def requests(chance: random.Random, lengths: list[tuple[int, int]]) -> list[Request]:
    return [([chance.randrange(10, 4000) for _ in range(prompt)], answer) for prompt, answer in lengths]


def timed(llm: LLM, asked: list[Request]) -> float:
    params = [SamplingParams(temperature=0, max_tokens=answer, ignore_eos=True) for _, answer in asked]
    start = time.perf_counter()
    outputs = llm.generate([prompt for prompt, _ in asked], params, use_tqdm=False)
    seconds = time.perf_counter() - start
    found = [len(output.outputs.token_ids) for output in outputs]
    if found != [answer for _, answer in asked]:
        raise RuntimeError(f"answers were cut: {next(output.error_msg for output in outputs if output.error_msg)}")
    return seconds
