"""A card says what a CPU says: token for token in float32, and nearly as likely in the formats that round."""

import statistics
from typing import Any

import pytest
from builders.cpu_answers import on_cpu
from builders.on_card import generated, mixed_prompts, pocket, sized

from penstock import SamplingParams

PROMPTS, LONGEST = mixed_prompts(20), sized(48, 4)
# Weights, keys and values; and how far the log-probabilities of a prompt's tokens may lie apart in the mean: twice what
# Triton's interpreter finds (0.028 in bfloat16, 0.074 in int8), since a CPU keeps its activations in float32, and
# quantizes them for int4, too. A wrong kernel is off by more than 1.
FORMS: dict[str, tuple[dict[str, Any], float]] = {
    "bfloat16": ({"dtype": "bfloat16"}, 0.06),
    "int8": ({"dtype": "bfloat16", "quantization": "int8", "kv_cache_dtype": "int8"}, 0.15),
    "wint8": ({"dtype": "bfloat16", "quantization": "wint8", "kv_cache_dtype": "fp16"}, 0.15),
    "int4": ({"dtype": "bfloat16", "quantization": "int4", "kv_cache_dtype": "int8"}, 0.3),
}


def told(where: str, max_tokens: int, **options: Any) -> dict[str, Any]:
    """The greedy tokens of every answer, and the log-probability of every prompt token but the first."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, prompt_logprobs=0)
    with pocket(where, **options) as llm:
        outputs = generated(llm, PROMPTS, params)
    likely = [
        entry[token].logprob
        for output in outputs
        for token, entry in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True)
    ]
    return {"tokens": [list(output.outputs.token_ids) for output in outputs], "likely": likely}


def test_greedy_answers_in_float32_are_those_of_the_cpu(device):
    expected = on_cpu("greedy-float32", lambda: told("cpu", LONGEST, dtype="float32"))
    found = told(device, LONGEST, dtype="float32")
    assert found["tokens"] == expected["tokens"]
    assert found["likely"] == pytest.approx(expected["likely"], abs=2e-3)


@pytest.mark.parametrize("form", FORMS)
def test_rounded_formats_find_a_text_as_likely_as_on_the_cpu(device, form):
    options, apart = FORMS[form]
    expected = on_cpu(f"likely-{form}", lambda: told("cpu", 1, **options))["likely"]
    found = told(device, 1, **options)["likely"]
    assert statistics.mean(abs(one - other) for one, other in zip(found, expected, strict=True)) < apart
