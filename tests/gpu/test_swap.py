"""Keys and values that gave way to others come back from the host's memory, as they were."""

from typing import Any

from builders.on_card import generated, pocket

from penstock import LLM, SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=8, logprobs=1, ignore_eos=True)
# Each has 200 tokens; the blocks hold three.
PROMPTS = [[(13 * place + 101 * number) % 1400 + 10 for place in range(200)] for number in range(9)]
FEW_BLOCKS = {"kv_cache_memory": None, "num_gpu_blocks_override": 48, "deterministic": True, "dtype": "bfloat16"}


def visits(llm: LLM) -> tuple[list[list[int]], list[int]]:
    """Each prompt's answer on its second visit, and how many of its tokens were cached."""
    for prompt in PROMPTS:
        generated(llm, [prompt], PARAMS)
    outputs = [generated(llm, [prompt], PARAMS)[0] for prompt in PROMPTS]
    return [output.outputs.token_ids for output in outputs], [output.num_cached_tokens for output in outputs]


def found_with(device: str, **options: Any) -> tuple[list[list[int]], list[int]]:
    with pocket(device, **FEW_BLOCKS, **options) as llm:
        return visits(llm)


def test_a_prefix_that_was_evicted_comes_back_and_answers_alike(device):
    expected, cached_without = found_with(device)
    answers, cached = found_with(device, swap_space=1)
    assert answers == expected
    assert cached_without == [0] * len(PROMPTS), "the blocks were meant to be too few"
    assert min(cached) >= 160


def test_many_at_once_swap_without_harm(device):
    with pocket(device, **FEW_BLOCKS) as llm:
        expected = [list(output.outputs.token_ids) for output in generated(llm, PROMPTS, PARAMS)]
    with pocket(device, **FEW_BLOCKS, swap_space=1) as llm:
        for _ in range(3):
            assert [list(output.outputs.token_ids) for output in generated(llm, PROMPTS, PARAMS)] == expected
