"""Real trees on random weights, made on the card: decoding alone, prompts, many requests together, what options cost.

Every round asks for prompts that are new, so that no prefix is found.
"""

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.models import SHAPES, write_config

from penstock import LLM, SamplingParams

from .setting import BANDWIDTH, MATRIX_RATE, Figure, Part, Setting
from .work import Work

Request = tuple[list[int], int]  # prompt, output tokens

_FORMS = (("8b", "bf16"), ("8b", "int8"), ("8b", "wint8"), ("8b", "int4"), ("0.6b", "bf16"))
_CONTEXT = 4096  # of the models
_PRICES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("as it is", {}),
    ("deterministic", {"deterministic": True}),
    ("enforce_eager", {"enforce_eager": True}),
)
NUM_TOGETHER, NUM_FEW = 256, 64  # sequences


def together(number: int) -> str:
    """The figure's name, which other sections look up."""
    return f"{number} sequences together"


# --- one sequence, and prompts alone ----------------------------------------------------------------------------------


def decode(setting: Setting) -> Iterator[Part]:
    for shape, form in _FORMS:
        yield Part(f"decode alone, {shape} {form}", partial(_alone, setting, shape, form))


def _alone(setting: Setting, shape: str, form: str) -> Iterator[Figure]:
    quantization = None if form == "bf16" else form
    with opened(setting, shape, quantization=quantization, max_num_seqs=16) as (llm, work):
        seconds, context = step_seconds(llm, work, setting)
        rate = (work.weight_bytes(form) + context * work.kv_bytes()) / seconds / 1e9
        name = f"decode alone, {shape} {form}"
        yield Figure(name, 1 / seconds, "tokens/s", setting.share(rate, BANDWIDTH), BANDWIDTH)
        if form == "bf16":
            setting.rates[shape] = seconds
        elif shape in setting.rates:  # else the plain one failed, and nothing stands beside it
            yield Figure(f"{name}, beside bf16", setting.rates[shape] / seconds, "x")
        if (shape, form) == ("8b", "bf16"):
            yield from _prompts(llm, work, setting)


def step_seconds(llm: LLM, work: Work, setting: Setting) -> tuple[float, float]:
    """Of one step at batch 1, and the mean context."""
    length, answer = setting.sized((384, 256), (24, 8))
    chance = random.Random(1)
    timed(llm, requests(chance, work, [(length, answer)]))
    taken = []
    for _ in range(3):
        whole, first = (timed(llm, requests(chance, work, [(length, count)])) for count in (answer, 1))
        taken.append((whole - first) / (answer - 1))
    return statistics.median(taken), length + answer / 2


def _prompts(llm: LLM, work: Work, setting: Setting) -> Iterator[Figure]:
    number, length = setting.sized((8, 2048), (3, 40))
    chance = random.Random(2)
    seconds = min(timed(llm, requests(chance, work, [(length, 1)] * number)) for _ in range(4))
    rate = work.prompt_operations([length] * number) / seconds / 1e12
    share = setting.share(rate, MATRIX_RATE)
    yield Figure(f"{number} prompts of {length:,}, 8b bf16", number * length / seconds, "tokens/s", share, MATRIX_RATE)


# --- many together ----------------------------------------------------------------------------------------------------


def throughput(setting: Setting) -> Iterator[Part]:
    for kind in ("bf16", "int8"):
        yield Part(f"{together(NUM_TOGETHER)}, {kind} KV", partial(_together, setting, kind))


def _together(setting: Setting, kind: str) -> Iterator[Figure]:
    name = together(NUM_TOGETHER) if kind == "bf16" else f"{together(NUM_TOGETHER)}, {kind} KV"
    with opened(setting, "0.6b", kv_cache_dtype=kind, max_num_seqs=NUM_TOGETHER) as (llm, work):
        yield _cold(name, llm, work, setting)
        yield from _rounds(name, llm, work, setting, NUM_TOGETHER, kind)


def _cold(name: str, llm: LLM, work: Work, setting: Setting) -> Figure:
    """The first round after a start."""
    lengths = mixed(setting.sized(NUM_TOGETHER, 6), *setting.sized((100, 1024), (8, 24)))
    seconds = timed(llm, requests(random.Random(2), work, lengths))
    return Figure(f"{name}, cold", sum(answer for _, answer in lengths) / seconds, "tokens/s")


def price(setting: Setting) -> Iterator[Part]:
    for option, given in _PRICES:
        yield Part(f"{together(NUM_FEW)}, {option}", partial(_priced, setting, option, given))


def _priced(setting: Setting, option: str, given: dict[str, Any]) -> Iterator[Figure]:
    name = together(NUM_FEW) if not given else f"{together(NUM_FEW)}, {option}"
    with opened(setting, "0.6b", max_num_seqs=NUM_FEW, **given) as (llm, work):
        for figure in _rounds(name, llm, work, setting, NUM_FEW, "bf16"):
            yield figure
            if not given:
                setting.rates["plain"] = figure.value
            elif "plain" in setting.rates:  # else that tree failed
                yield Figure(f"{name}: of the rate without", figure.value / setting.rates["plain"], "x")


def _rounds(name: str, llm: LLM, work: Work, setting: Setting, number: int, kind: str) -> Iterator[Figure]:
    """The better of two rounds, not the first after a start."""
    number = min(number, setting.sized(number, 6))
    lengths = mixed(number, *setting.sized((100, 1024), (8, 24)))
    seconds = min(timed(llm, requests(random.Random(seed), work, lengths)) for seed in range(3, 5))
    rate = sum(answer for _, answer in lengths) / seconds
    least = work.answering_bytes(lengths, kind) / 1e9  # GB, so that least / bandwidth are seconds
    yield Figure(name, rate, "tokens/s", setting.share(least / seconds, BANDWIDTH), BANDWIDTH)


def mixed(number: int, shortest: int, longest: int) -> list[tuple[int, int]]:
    """(prompt, answer) lengths, the same for every engine and round."""
    chance = random.Random(0)
    return [(chance.randint(shortest, longest), chance.randint(shortest, longest)) for _ in range(number)]


# --- the trees --------------------------------------------------------------------------------------------------------


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


def requests(chance: random.Random, work: Work, lengths: list[tuple[int, int]]) -> list[Request]:
    return [([chance.randrange(10, work.vocabulary) for _ in range(prompt)], answer) for prompt, answer in lengths]


def timed(llm: LLM, asked: list[Request]) -> float:
    params = [SamplingParams(temperature=0, max_tokens=answer, ignore_eos=True) for _, answer in asked]
    start = time.perf_counter()
    outputs = llm.generate([prompt for prompt, _ in asked], params, use_tqdm=False)
    seconds = time.perf_counter() - start
    found = [len(output.outputs.token_ids) for output in outputs]
    if found != [answer for _, answer in asked]:
        raise RuntimeError(f"answers were cut: {next(output.error_msg for output in outputs if output.error_msg)}")
    return seconds
