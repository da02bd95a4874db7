"""Models with windows or states through the real processes: conversations compute each token once, and long requests
fit into the memory that their windows need.
"""

from typing import Any

import pytest
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams

# 2 layers of full attention in 32 blocks, and 2 that hold a window and a step's tokens in 8.
A_BLOCK = 16 * 2 * 2 * 2 * 16 * 4
LEAST = {"kv_cache_memory": (32 + 8) * A_BLOCK, "kv_cache_dtype": "fp32"}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "alternating": ("gpt_oss", {"num_hidden_layers": 4, "sliding_window": 40}, LEAST),
    "every layer": ("mistral", {"sliding_window": 48, "num_attention_heads": 4, "num_key_value_heads": 2}, {}),
    "delta nets": ("qwen3_5_text", {}, {}),
}
SMALL = {"max_model_len": 512, "block_size": 16, "kv_cache_memory": "8MiB", "max_num_batched_tokens": 64, "quiet": True}


def conversation(llm: LLM, turns: int, is_cached: bool = True) -> tuple[list[tuple], int, int]:
    """Each turn with what was said before: the answers with their log-probabilities, how many tokens were computed,
    and how many are known at the end. Where nothing may be found, each turn has a salt of its own.
    """
    asked = SamplingParams(temperature=0, max_tokens=9, logprobs=1, ignore_eos=True)
    history: list[int] = []
    answers, num_computed = [], 0
    for turn in range(turns):
        history += [(turn * 13 + place) % 250 + 1 for place in range(11)]
        prompt = {"prompt_token_ids": list(history), **({} if is_cached else {"cache_salt": f"{turn}"})}
        [output] = llm.generate([prompt], asked, use_tqdm=False)
        assert is_cached or output.num_cached_tokens == 0
        num_computed += len(history) - output.num_cached_tokens + 9
        found = output.outputs
        answers.append((found.token_ids, [sorted((k, v.logprob) for k, v in each.items()) for each in found.logprobs]))
        history += found.token_ids
    return answers, num_computed, len(history)


@pytest.mark.parametrize(
    "kind, turns, ranks",
    [
        ("alternating", 8, 1),
        ("delta nets", 8, 1),
        *(pytest.param(kind, 20, ranks, marks=pytest.mark.long) for kind in MODELS for ranks in (1, 2)),
    ],
)
def test_a_conversation_computes_each_token_once_and_the_longest_request_fits_into_the_least_memory(
    kind, turns, ranks, tmp_path
):
    family, model, least = MODELS[kind]
    options = {**SMALL, **(least if ranks == 1 else {}), "tensor_parallel_size": ranks, "num_threads": ranks}
    with LLM(tiny_model(tmp_path, family, **model), **options) as llm:
        anew, _, _ = conversation(llm, turns, is_cached=False)
        answers, num_computed, num_tokens = conversation(llm, turns)
        assert answers == anew
        # Of each answer the next turn computes again what fills no block.
        assert num_computed < num_tokens + turns * 16
        longest = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
        [output] = llm.generate([list(range(1, 251)) * 2], longest, use_tqdm=False)
    assert len(output.outputs.token_ids) == 12
