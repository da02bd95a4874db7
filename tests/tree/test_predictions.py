"""A prediction of an answer is its drafts: a right one is accepted, and neither it nor a wrong one changes a bit."""

from collections.abc import Iterator

import pytest
from builders.expecting import drafting_whatever_is_expected

from penstock import LLM, RequestOutput, SamplingParams

QUESTION = [{"role": "user", "content": "What can you do?"}]
SAMPLED = {"temperature": 0.8, "max_tokens": 40, "ignore_eos": True, "seed": 3, "logprobs": 2, "n": 2}
OPTIONS = {"max_model_len": 512, "kv_cache_memory": "64MiB", "quiet": True}


@pytest.fixture(scope="module")
def plain() -> RequestOutput:
    """The answer of a model that drafts nothing."""
    with LLM("pocket", **OPTIONS, speculative_config=False) as llm:
        return asked(llm)


@pytest.fixture(scope="module")
def drafting(tmp_path_factory) -> Iterator[LLM]:
    """A model that drafts predictions, whether they pay or not, and nothing else."""
    method = drafting_whatever_is_expected(tmp_path_factory.mktemp("run"))
    method |= {"suffix_decoding_max_spec_factor": 0.01}
    with LLM("pocket", **OPTIONS, speculative_config=method) as llm:
        yield llm


def asked(llm: LLM, **params) -> RequestOutput:
    return llm.chat(QUESTION, SamplingParams(**SAMPLED | params), use_tqdm=False)[0]


def test_a_right_prediction_is_accepted_and_none_changes_an_answer(drafting, plain):
    for text, accepted in (
        (None, range(5)),
        (plain.outputs.text, range(40, 80)),  # of both samples, which are alike
        ("Nothing of this is ever said.", range(5)),
        ("5" * 400, range(5)),
    ):
        found = asked(drafting, prediction=text)
        assert found.outputs == plain.outputs, text
        assert found.metrics.num_accepted_tokens in accepted, text
        assert text is None or found.metrics.num_draft_tokens >= 5, text  # a wrong one has been tried as well


def test_an_answer_that_a_stop_string_ends_has_its_counts_as_well(drafting, plain):
    text, before = plain.outputs.text, drafting.stats()
    found = asked(drafting, prediction=text, stop=[text[-9:]], n=1)
    assert found.outputs.finish_reason == "stop" and found.metrics.num_accepted_tokens > 10
    assert found.metrics.num_draft_tokens <= drafting.stats().draft_tokens - before.draft_tokens
