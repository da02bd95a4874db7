"""A mixture of experts split over several ranks, by width and by whole experts, answers as on one.

The quick tests have most of it without a tree, in tests/worker/test_models_split.py: each rank here imports torch anew.
"""

import pytest
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
PROMPTS = [[number, 5, 7 * number] for number in range(1, 12)]


def answers(folder, **options) -> list[list[int]]:
    with LLM(folder, **OPTIONS, **options) as llm:
        return [list(output.outputs.token_ids) for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


@pytest.mark.parametrize("is_by_expert", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("family", ["qwen2_moe", pytest.param("olmoe", marks=pytest.mark.long)])
def test_two_ranks_give_the_tokens_of_one(tmp_path, family, is_by_expert):
    folder = tiny_model(tmp_path, family, num_hidden_layers=2)
    assert answers(folder, tensor_parallel_size=2, enable_expert_parallel=is_by_expert) == answers(folder)


# What ranks can't share evenly, and what a config may say of experts in the extreme.
_HEADS = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 16}
ODD = {
    "7 experts, all of them": ("qwen3_moe", {"num_experts": 7, "num_experts_per_tok": 7}),
    "3 experts, a width of 4": ("qwen3_moe", {"num_experts": 3, "num_experts_per_tok": 1, "moe_intermediate_size": 4}),
    "dense layers between, tied": (
        "qwen3_moe",
        {"decoder_sparse_step": 2, "mlp_only_layers": [3], "num_hidden_layers": 6, "tie_word_embeddings": True,
         "moe_intermediate_size": 68},
    ),
    "a shared width of 20": ("qwen2_moe", {"shared_expert_intermediate_size": 20, "moe_intermediate_size": 28}),
    "by interval": ("ernie4_5_moe", {"moe_layer_interval": 2, "num_hidden_layers": 5, "moe_num_experts": 7}),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", ODD)
def test_three_ranks_give_the_tokens_of_one(tmp_path, name):
    family, given = ODD[name]
    folder = tiny_model(tmp_path, family, **_HEADS | given)
    alone = answers(folder)
    assert answers(folder, tensor_parallel_size=3) == alone
    assert answers(folder, tensor_parallel_size=3, enable_expert_parallel=True) == alone


@pytest.mark.long
def test_one_expert_is_split_by_width(tmp_path):
    folder = tiny_model(tmp_path, "qwen3_moe", num_experts=1, num_experts_per_tok=1)
    assert answers(folder, tensor_parallel_size=2) == answers(folder)
