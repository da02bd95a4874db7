"""A mixture of experts split over two ranks, by width and by whole experts, answers as on one."""

import pytest
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
PROMPTS = [[number, 5, 7 * number] for number in range(1, 12)]


def answers(folder, **options) -> list[list[int]]:
    with LLM(folder, **OPTIONS, **options) as llm:
        return [list(output.outputs.token_ids) for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


@pytest.mark.parametrize("family", ["qwen2_moe", pytest.param("olmoe", marks=pytest.mark.long)])
def test_two_ranks_give_the_tokens_of_one(tmp_path, family):
    folder = tiny_model(tmp_path, family, num_hidden_layers=2)
    alone = answers(folder)
    assert answers(folder, tensor_parallel_size=2) == alone
    assert answers(folder, tensor_parallel_size=2, enable_expert_parallel=True) == alone
