"""A checkpoint of 8-bit floats finds a text nearly as likely as a CPU does, whatever takes its products.

As it is with `PENSTOCK_FLOAT8_PRODUCTS=1`, which `scripts/check_gpu FOLDER switches` tries, and as integers without.
"""

import statistics
from pathlib import Path

import pytest
from builders.cpu_answers import on_cpu
from builders.float8_forms import FLOAT8_FORMS
from builders.on_card import SMALL, generated
from builders.quantized_model import float8_model

from penstock import LLM, SamplingParams

PROMPTS = [[(7 * place + length) % 300 + 10 for place in range(length)] for length in (3, 20, 70)]
BY_OUTPUT_OR_BLOCK = [form for form in FLOAT8_FORMS if form.name in ("compressed-channel", "deepseek-128")]


def likely(where: str, model: Path) -> dict[str, list[float]]:
    """The log-probability of every prompt token but the first."""
    with LLM(model, device=where, dtype="bfloat16", **SMALL) as llm:
        outputs = generated(llm, PROMPTS, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0))
    found = [zip(each.prompt_token_ids[1:], each.prompt_logprobs[1:], strict=True) for each in outputs]
    return {"likely": [entry[token].logprob for of_prompt in found for token, entry in of_prompt]}


@pytest.mark.parametrize("form", BY_OUTPUT_OR_BLOCK, ids=str)
def test_a_text_is_nearly_as_likely_as_on_the_cpu(device, tmp_path, form):
    model, _ = float8_model(tmp_path, form, hidden_size=256, intermediate_size=512)
    expected = on_cpu(f"likely-{form}", lambda: likely("cpu", model))["likely"]
    found = likely(device, model)["likely"]
    assert statistics.mean(abs(one - other) for one, other in zip(found, expected, strict=True)) < 0.15
