"""Drafts change no bit of an answer: right and wrong predictions, in captured and in launched steps."""

from collections.abc import Iterator
from typing import Any

import pytest
from builders.on_card import generated, mixed_prompts, pocket, told
from msgspec.structs import replace

from penstock import LLM, SamplingParams

PROMPTS = mixed_prompts(8)
SAMPLED: tuple[dict[str, Any], ...] = (
    {"temperature": 0, "logprobs": 2},
    {"temperature": 1.0, "top_p": 0.9, "logprobs": 1},
    {"temperature": 0.8, "top_k": 20, "repetition_penalty": 1.2},
    {"temperature": 1.0, "guided_regex": "[a-z ]{20,60}"},
)
PARAMS = [
    SamplingParams(seed=number, max_tokens=24 + number, ignore_eos=True, **SAMPLED[number % len(SAMPLED)])
    for number in range(len(PROMPTS))
]


@pytest.fixture(scope="module", params=[{}, {"enforce_eager": True}], ids=["captured", "launched"])
def llm(request, device) -> Iterator[LLM]:
    with pocket(device, dtype="bfloat16", deterministic=True, **request.param) as llm:
        yield llm


def test_expected_answers_change_nothing_whether_they_are_right_or_not(llm):
    plain = generated(llm, PROMPTS, PARAMS)
    texts = [output.outputs[0].text for output in plain]
    wrong_in_the_middle = [text[: len(text) // 2] + " and then " + text[len(text) // 2 :] for text in texts]
    for predictions in (texts, wrong_in_the_middle, texts[1:] + texts[:1]):
        expecting = [replace(params, prediction=text) for params, text in zip(PARAMS, predictions, strict=True)]
        together = generated(llm, PROMPTS, expecting)
        assert [told(output) for output in together] == [told(output) for output in plain]
        alone = [generated(llm, [prompt], [params])[0] for prompt, params in zip(PROMPTS, expecting, strict=True)]
        assert [told(output) for output in alone] == [told(output) for output in plain]
    stats = llm.stats()
    assert 0 < stats.accepted_tokens < stats.draft_tokens
