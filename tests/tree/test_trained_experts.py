"""A trained mixture through a real tree: alone, in a crowd, and split over ranks."""

from typing import Any

import pytest
from builders.trained_mixture import FOLDER, LONGEST, questions, share_right

from penstock import LLM, SamplingParams

LONG = pytest.mark.long
OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
ASKED = questions(per_kind=16)
GREEDY = SamplingParams(temperature=0, max_tokens=LONGEST, logprobs=1)


def outputs(llm: LLM, asked: list[Any]) -> list[Any]:
    prompts = [question.prompt for question in asked]
    return [output.outputs for output in llm.generate(prompts, GREEDY, use_tqdm=False)]


# tests/worker/test_trained_experts.py and test_formats_over_ranks.py have the other formats, and experts cut by width.
@pytest.mark.parametrize(
    "format", [{"dtype": "float32"}, *(pytest.param({"quantization": each}, marks=LONG) for each in ("int8", "int4"))]
)
def test_neither_a_crowd_nor_a_second_rank_changes_an_answer(format):
    with LLM(FOLDER, **OPTIONS, **format) as llm:
        crowd, alone = outputs(llm, ASKED), [outputs(llm, [question])[0] for question in ASKED[::4]]
    one = [list(output.token_ids) for output in crowd]
    assert share_right(ASKED, one) > 0.8
    for lonely, among_others in zip(alone, crowd[::4], strict=True):
        assert list(lonely.token_ids) == list(among_others.token_ids)
        assert lonely.logprobs == among_others.logprobs
    with LLM(FOLDER, tensor_parallel_size=2, enable_expert_parallel=True, **OPTIONS, **format) as llm:
        both = [list(output.token_ids) for output in outputs(llm, ASKED)]
    # In integers each rank rounds its own share of the activations: what hangs on very little may come out otherwise.
    assert sum(map(list.__eq__, both, one)) >= (1 if "dtype" in format else 0.9) * len(one)
