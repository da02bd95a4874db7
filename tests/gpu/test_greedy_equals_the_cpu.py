"""A card says what a CPU says: token for token in float32, and nearly as likely in the formats that round."""

import statistics
from typing import Any

import pytest
from builders.on_card import generated, mixed_prompts, pocket

from penstock import RequestOutput, SamplingParams

PROMPTS = mixed_prompts(20)
# Weights, keys and values; and how far the log-probabilities of a prompt's tokens may lie apart in the mean: twice what
# Triton's interpreter finds (0.028 in bfloat16, 0.074 in int8), since a CPU keeps its activations in float32, and
# quantizes them for int4, too. A wrong kernel is off by more than 1.
FORMS: dict[str, tuple[dict[str, Any], float]] = {
    "bfloat16": ({"dtype": "bfloat16"}, 0.06),
    "int8": ({"dtype": "bfloat16", "quantization": "int8", "kv_cache_dtype": "int8"}, 0.15),
    "wint8": ({"dtype": "bfloat16", "quantization": "wint8", "kv_cache_dtype": "fp16"}, 0.15),
    "int4": ({"dtype": "bfloat16", "quantization": "int4", "kv_cache_dtype": "int8"}, 0.3),
}


def likelihoods(outputs: list[RequestOutput]) -> list[float]:
    """The log-probability of every prompt token but the first, under the model."""
    found = []
    for output in outputs:
        for token, entry in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
            found.append(entry[token].logprob)
    return found


def test_greedy_answers_in_float32_are_those_of_the_cpu(device):
    params = SamplingParams(temperature=0, max_tokens=48, prompt_logprobs=0)
    answers = []
    for where in (device, "cpu"):
        with pocket(where, dtype="float32") as llm:
            answers.append(generated(llm, PROMPTS, params))
    found, expected = ([list(output.outputs.token_ids) for output in outputs] for outputs in answers)
    assert found == expected
    assert likelihoods(answers[0]) == pytest.approx(likelihoods(answers[1]), abs=2e-3)


@pytest.mark.parametrize("form", FORMS)
def test_rounded_formats_find_a_text_as_likely_as_on_the_cpu(device, form):
    options, apart = FORMS[form]
    params, found = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0), []
    for where in (device, "cpu"):
        with pocket(where, **options) as llm:
            found.append(likelihoods(generated(llm, PROMPTS, params)))
    assert statistics.mean(abs(one - other) for one, other in zip(*found, strict=True)) < apart
