"""With `deterministic=True` an answer has the same bits alone and in company, in chunks, after a preemption."""

import random
from collections.abc import Iterator

import pytest
from builders.on_card import generated, mixed_prompts, pocket, told

from penstock import LLM, SamplingParams

PROMPTS = mixed_prompts(24)
SAMPLED = (
    {"temperature": 0, "logprobs": 2},
    {"temperature": 1.0, "logprobs": 1},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 1.2, "top_p": 0.7, "repetition_penalty": 1.2},
    {"temperature": 0, "prompt_logprobs": 1, "frequency_penalty": 0.5},
    {"temperature": 0.7, "min_p": 0.05, "n": 2},
)
PARAMS = [
    SamplingParams(seed=number, max_tokens=24 + number, ignore_eos=True, **SAMPLED[number % len(SAMPLED)])
    for number in range(len(PROMPTS))
]
FORMS = {
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "quantization": "int8", "kv_cache_dtype": "int8"},
    "int4": {"dtype": "bfloat16", "quantization": "int4", "kv_cache_dtype": "int8"},
}


@pytest.fixture(scope="module", params=FORMS)
def form(request) -> dict[str, str]:
    return FORMS[request.param]


@pytest.fixture(scope="module")
def alone(device, form) -> list[tuple]:
    with pocket(device, deterministic=True, enable_prefix_caching=False, **form) as llm:
        return [told(generated(llm, [prompt], [params])[0]) for prompt, params in zip(PROMPTS, PARAMS, strict=True)]


@pytest.fixture(scope="module")
def crowded(device, form) -> Iterator[LLM]:
    """Too few blocks for all, and steps that cut prompts."""
    small = {"kv_cache_memory": None, "num_gpu_blocks_override": 64, "max_num_batched_tokens": 96}
    with pocket(device, deterministic=True, static_decode_blocks=0, **small, **form) as llm:
        yield llm


@pytest.mark.parametrize("order", range(2))
def test_answers_in_company_are_those_alone(crowded, alone, order):
    numbers = list(range(len(PROMPTS)))
    random.Random(order).shuffle(numbers)
    outputs = generated(crowded, [PROMPTS[number] for number in numbers], [PARAMS[number] for number in numbers])
    found = {number: told(output) for number, output in zip(numbers, outputs, strict=True)}
    different = [number for number in sorted(found) if found[number] != alone[number]]
    assert not different, "\n".join(f"{number}: {found[number][0]}\nalone {alone[number][0]}" for number in different)
    stats = crowded.stats()
    assert stats.preemptions > 0 and stats.cached_tokens > 0, "the company was meant to be crowded"
