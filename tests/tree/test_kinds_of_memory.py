"""Models with windows or states through the real processes: conversations compute each token once, and long requests
fit into the memory that their windows need.
"""

import pytest
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams

MODELS = {
    "alternating": ("gpt_oss", {"num_hidden_layers": 4, "sliding_window": 40}),
    "every layer": ("mistral", {"sliding_window": 48, "num_attention_heads": 4, "num_key_value_heads": 2}),
    "delta nets": ("qwen3_5_text", {}),
}
SMALL = {"max_model_len": 512, "block_size": 16, "kv_cache_memory": "8MiB", "max_num_batched_tokens": 64, "quiet": True}


def conversation(llm: LLM) -> tuple[list[tuple], int, int]:
    """Twenty turns, each with what was said before: the answers with their log-probabilities, how many tokens were
    computed, and how many are known at the end.
    """
    asked = SamplingParams(temperature=0, max_tokens=9, logprobs=1, ignore_eos=True)
    history: list[int] = []
    answers, num_computed = [], 0
    for turn in range(20):
        history += [(turn * 13 + place) % 250 + 1 for place in range(11)]
        [output] = llm.generate([list(history)], asked, use_tqdm=False)
        num_computed += len(history) - output.num_cached_tokens + 9
        found = output.outputs
        answers.append((found.token_ids, [sorted((k, v.logprob) for k, v in each.items()) for each in found.logprobs]))
        history += found.token_ids
    return answers, num_computed, len(history)


@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", list(MODELS))
def test_a_conversation_of_twenty_turns_computes_each_token_once(kind, ranks, tmp_path):
    family, options = MODELS[kind]
    folder = tiny_model(tmp_path, family, **options)
    options = {**SMALL, "tensor_parallel_size": ranks, "num_threads": ranks}
    with LLM(folder, **options) as llm:
        answers, num_computed, num_tokens = conversation(llm)
    with LLM(folder, enable_prefix_caching=False, **options) as llm:
        assert conversation(llm)[0] == answers
    # Of each answer the next turn computes again what fills no block.
    assert num_computed < num_tokens + 20 * 16


def test_a_request_of_the_longest_length_fits_into_the_memory_that_is_asked_for(tmp_path):
    folder = tiny_model(tmp_path, "gpt_oss", num_hidden_layers=4, sliding_window=40)
    # 2 layers of full attention in 32 blocks, and 2 that hold a window and a step's tokens in 8.
    a_block = 16 * 2 * 2 * 2 * 16 * 4
    options = {**SMALL, "kv_cache_memory": (32 + 8) * a_block, "kv_cache_dtype": "fp32"}
    with LLM(folder, **options) as llm:
        [output] = llm.generate(
            [list(range(1, 251)) * 2], SamplingParams(temperature=0, max_tokens=12, ignore_eos=True), use_tqdm=False
        )
    assert len(output.outputs.token_ids) == 12
