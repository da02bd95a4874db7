"""A prediction of an answer is its drafts: a right one is accepted, and neither it nor a wrong one changes a bit."""

import pytest

from penstock import LLM, RequestOutput, SamplingParams

QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
SAMPLED = {"temperature": 0.8, "max_tokens": 40, "ignore_eos": True, "seed": 3, "logprobs": 2, "n": 2}


@pytest.fixture(scope="module")
def drafting():
    with LLM("pocket", max_model_len=512, kv_cache_memory="64MiB", quiet=True, speculative_config="suffix") as llm:
        yield llm


def asked(llm: LLM, **params) -> RequestOutput:
    return llm.chat(QUESTION, SamplingParams(**SAMPLED | params), use_tqdm=False)[0]


def test_a_right_prediction_is_accepted_and_none_changes_an_answer(drafting, pocket_llm):
    plain = asked(pocket_llm)
    for text in (plain.outputs.text, "Nothing of this is ever said.", "5" * 400):
        found = asked(drafting, prediction=text)
        assert found.outputs == plain.outputs
        assert 0 <= found.metrics.num_accepted_tokens <= found.metrics.num_draft_tokens
    right = asked(drafting, prediction=plain.outputs.text, n=1)
    assert right.metrics.num_accepted_tokens > 10
    assert right.outputs[0] == plain.outputs[0]


def test_an_answer_that_a_stop_string_ends_has_its_counts_as_well(drafting):
    text, before = asked(drafting).outputs.text, drafting.stats()
    found = asked(drafting, prediction=text, stop=[text[-9:]], n=1)
    after = drafting.stats()
    assert found.outputs.finish_reason == "stop" and found.metrics.num_accepted_tokens > 10
    assert found.metrics.num_draft_tokens <= after.draft_tokens - before.draft_tokens
    assert 0 < after.acceptance <= 1
